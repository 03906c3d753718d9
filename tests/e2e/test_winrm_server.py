"""The server over loopback, asked by a small client of the test's own."""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
import uuid
from typing import TYPE_CHECKING, Self
from xml.etree import ElementTree as ET

import pytest
import spnego
import trustme

from imagegen.rehearsal.winrm.command import Result
from imagegen.rehearsal.winrm.server import WinRMServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imagegen.rehearsal.winrm.command import Write

pytestmark = pytest.mark.e2e

_USER, _PASSWORD = "Administrator", "Pa55word"
_SHELL = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
_TRANSFER = "http://schemas.xmlsoap.org/ws/2004/09/transfer"
_GONE = (ConnectionError, ssl.SSLError, http.client.BadStatusLine)
_WAIT_S = 10


def _envelope(action: str, shell: str, body: str, timeout: str = "PT10S") -> str:
    return (
        '<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope"'
        ' xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"'
        f' xmlns:w="http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd" xmlns:r="{_SHELL}"><e:Header>'
        f"<a:Action>{action}</a:Action><a:MessageID>uuid:{uuid.uuid4()}</a:MessageID>"
        f"<w:ResourceURI>{_SHELL}/cmd</w:ResourceURI><w:OperationTimeout>{timeout}</w:OperationTimeout>"
        f'<w:SelectorSet><w:Selector Name="ShellId">{shell}</w:Selector></w:SelectorSet>'
        f"</e:Header><e:Body>{body}</e:Body></e:Envelope>"
    )


_CREATE = _envelope(f"{_TRANSFER}/Create", "", "")


class _Client:
    """One connection; logs in when asked to, as Packer's client does."""

    def __init__(self, server: WinRMServer, authority: trustme.CA) -> None:
        trust = ssl.create_default_context()
        trust.check_hostname = False
        authority.configure_trust(trust)
        self._http = http.client.HTTPSConnection("127.0.0.1", server.port, context=trust, timeout=_WAIT_S)
        self.shell = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def post(
        self, body: str | None = None, authorization: str = "", *, path: str = "/wsman", **headers: str
    ) -> tuple[int, str, str]:
        """Without a body of its own it asks for a shell."""
        headers = {"Content-Type": "application/soap+xml;charset=UTF-8"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if authorization:
            headers["Authorization"] = authorization
        self._http.request("POST", path, (_CREATE if body is None else body).encode(), headers)
        response = self._http.getresponse()
        return response.status, response.headers.get("WWW-Authenticate", ""), response.read().decode()

    def login(self, password: str = _PASSWORD) -> int:
        ntlm = spnego.client(_USER, password, hostname="guest", protocol="ntlm")
        status, offer, _ = self.post("", f"Negotiate {base64.b64encode(ntlm.step() or b'').decode()}")
        assert status == http.HTTPStatus.UNAUTHORIZED
        proof = ntlm.step(base64.b64decode(offer.removeprefix("Negotiate ")))
        return self.post(None, f"Negotiate {base64.b64encode(proof or b'').decode()}")[0]

    def ask(self, action: str, body: str = "", timeout: str = "PT10S") -> tuple[int, ET.Element]:
        status, _, text = self.post(_envelope(action, self.shell, body, timeout))
        return status, ET.fromstring(text)  # noqa: S314  # the answer of this test's own server

    def open(self) -> None:
        status, root = self.ask(f"{_TRANSFER}/Create")
        assert status == http.HTTPStatus.OK
        self.shell = root.findtext(f".//{{{_SHELL}}}ShellId") or ""

    def start(self, command: str) -> str:
        body = f"<r:CommandLine><r:Command><![CDATA[{command}]]></r:Command></r:CommandLine>"
        status, root = self.ask(f"{_SHELL}/Command", body)
        assert status == http.HTTPStatus.OK
        return root.findtext(f".//{{{_SHELL}}}CommandId") or ""

    def receive(self, command: str, timeout: str = "PT10S") -> tuple[bytes, bytes, int | None]:
        body = f'<r:Receive><r:DesiredStream CommandId="{command}">stdout stderr</r:DesiredStream></r:Receive>'
        status, root = self.ask(f"{_SHELL}/Receive", body, timeout)
        assert status == http.HTTPStatus.OK, ET.tostring(root)
        streams = {s.attrib["Name"]: base64.b64decode(s.text or "") for s in root.iter(f"{{{_SHELL}}}Stream")}
        code = root.findtext(f".//{{{_SHELL}}}ExitCode")
        return streams.get("stdout", b""), streams.get("stderr", b""), None if code is None else int(code)

    def drain(self, command: str) -> tuple[bytes, bytes, int]:
        stdout, stderr, code = self.receive(command)
        while code is None:
            more, errors, code = self.receive(command)
            stdout, stderr = stdout + more, stderr + errors
        return stdout, stderr, code


class _Guest:
    """Does what a test hands it."""

    def __init__(self) -> None:
        self.act: Callable[[Write], Result] = lambda _write: Result()
        self.commands: list[str] = []
        self.went_down = threading.Event()

    def disconnected(self) -> None:
        """Its connections are never lost."""

    def restarted(self) -> None:
        self.went_down.set()

    def run(self, command: str, write: Write) -> Result:
        self.commands.append(command)
        return self.act(write)


class _Stage:
    """A server with a clock that stands still until a test moves it."""

    def __init__(self, authority: trustme.CA) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("guest.invalid").configure_cert(context)
        self._authority = authority
        self.now = 0.0
        self.guest = _Guest()
        self.server = WinRMServer(
            self.guest,
            username=_USER,
            password=lambda: _PASSWORD,
            certificate=context,
            restart_s=5,
            clock=lambda: self.now,
        )

    def connect(self) -> _Client:
        return _Client(self.server, self._authority)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def stage(authority: trustme.CA) -> Iterator[_Stage]:
    made = _Stage(authority)
    with made.server:
        yield made


def test_a_command_runs_and_its_output_comes_back(stage: _Stage) -> None:
    def act(write: Write) -> Result:
        write(b"out")
        return Result(exit_code=3010, stderr=b"err")

    stage.guest.act = act
    with stage.connect() as client:
        assert client.login() == http.HTTPStatus.OK
        client.open()
        command = client.start('echo a >> "%TEMP%\\b" & c')
        assert client.drain(command) == (b"out", b"err", 3010)
        assert client.ask(f"{_SHELL}/Signal", f'<r:Signal CommandId="{command}"/>')[0] == http.HTTPStatus.OK
        assert client.ask(f"{_TRANSFER}/Delete")[0] == http.HTTPStatus.OK
        assert client.ask(f"{_TRANSFER}/Delete")[0] == http.HTTPStatus.INTERNAL_SERVER_ERROR
    assert stage.guest.commands == ['echo a >> "%TEMP%\\b" & c']


def test_much_output_is_cut_to_what_an_envelope_holds(stage: _Stage) -> None:
    data = bytes(range(256)) * 1_000

    def act(write: Write) -> Result:
        write(data)
        return Result(stderr=data)

    stage.guest.act = act
    with stage.connect() as client:
        client.login()
        client.open()
        assert len(client.receive(client.start("first"))[0]) == 48 * 1024
        assert client.drain(client.start("second")) == (data, data, 0)


def test_output_comes_while_the_command_runs(stage: _Stage) -> None:
    leave = threading.Event()

    def act(write: Write) -> Result:
        write(b"one line")
        return Result(exit_code=0 if leave.wait(_WAIT_S) else 1)

    stage.guest.act = act
    with stage.connect() as client:
        client.login()
        client.open()
        command = client.start("x")
        assert client.receive(command) == (b"one line", b"", None)
        body = f'<r:Receive><r:DesiredStream CommandId="{command}">stdout</r:DesiredStream></r:Receive>'
        status, root = client.ask(f"{_SHELL}/Receive", body, timeout="PT0.05S")
        assert status == http.HTTPStatus.INTERNAL_SERVER_ERROR
        assert "OperationTimeout" in "".join(root.itertext())
        leave.set()
        assert client.receive(command) == (b"", b"", 0)
    assert stage.server.faults == ()


def test_a_terminated_command_is_over_and_may_not_write(stage: _Stage) -> None:
    entered, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    written: list[bytes] = []

    def act(write: Write) -> Result:
        entered.set()
        go_on.wait(_WAIT_S)
        try:
            write(b"x")
            written.append(b"x")
        finally:
            ended.set()
        return Result()

    stage.guest.act = act
    with stage.connect() as client:
        client.login()
        client.open()
        command = client.start("x")
        assert entered.wait(_WAIT_S)
        client.ask(f"{_SHELL}/Signal", f'<r:Signal CommandId="{command}"/>')
        assert client.receive(command) == (b"", b"", 1)
        go_on.set()
        assert ended.wait(_WAIT_S)
    assert written == []
    assert stage.server.faults == ()


def test_a_guest_that_fails_is_a_fault(stage: _Stage) -> None:
    def act(_write: Write) -> Result:
        raise KeyError("gone")

    stage.guest.act = act
    with stage.connect() as client:
        client.login()
        client.open()
        assert client.drain(client.start("x")) == (b"", b"the guest failed: KeyError: 'gone'", 1)
    assert stage.server.faults[-1] == "the guest failed: KeyError: 'gone'"


def test_trust_belongs_to_one_connection(stage: _Stage) -> None:
    with stage.connect() as first, stage.connect() as second:
        assert first.login() == http.HTTPStatus.OK
        assert first.post()[0] == http.HTTPStatus.OK
        assert second.post()[:2] == (http.HTTPStatus.UNAUTHORIZED, "Negotiate")
        assert stage.server.cost.handshakes == 2
        assert stage.server.cost.messages == 2


@pytest.mark.parametrize(
    ("authorization", "fault"),
    [
        ("Basic QWRtaW46c2VjcmV0", "the client offered Basic authentication; this machine takes Negotiate (NTLM) only"),
        ("NTLM TlRMTVNTUAABAAAA", "the client offered NTLM authentication"),
        ("Negotiate ***", "NTLM authentication failed"),
        ("Negotiate TlRMTVNTUAADAAAA", "the token answers no challenge of this connection"),
        ("Negotiate YIIBgQ==", "the token answers no challenge of this connection"),
    ],
)
def test_another_login_is_refused_and_named(stage: _Stage, authorization: str, fault: str) -> None:
    with stage.connect() as client:
        for _ in range(2):
            assert client.post("", authorization)[:2] == (http.HTTPStatus.UNAUTHORIZED, "Negotiate")
    (found,) = stage.server.faults
    assert fault in found
    assert "QWRtaW46c2VjcmV0" not in found


def test_a_wrong_password_is_refused_named_and_ends_trust(stage: _Stage) -> None:
    with stage.connect() as client:
        assert client.login() == http.HTTPStatus.OK
        assert client.login("wrong") == http.HTTPStatus.UNAUTHORIZED
        assert client.post()[0] == http.HTTPStatus.UNAUTHORIZED
    assert stage.server.faults[-1] == "NTLM authentication failed: the password of 'Administrator' is wrong"


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "fault"),
    [
        ("/", {}, "", 404, "a request for '/'"),
        ("/wsman", {"Content_Type": "multipart/encrypted"}, "", 415, "a message of type 'multipart/encrypted'"),
        ("/wsman", {}, "hello", 400, "a message that is no WS-Management request: not XML"),
        ("/wsman", {"Content_Length": "600000"}, "", 413, "a request with Content-Length '600000'"),
        ("/wsman", {"Content_Length": "many"}, "", 411, "a request with Content-Length 'many'"),
        ("/wsman", {}, _CREATE.replace("shell/cmd", "shell/x"), 500, "a shell of an unknown type was requested"),
    ],
)
def test_what_is_not_winrm_is_a_fault(
    stage: _Stage, path: str, headers: dict[str, str], body: str, status: int, fault: str
) -> None:
    with stage.connect() as client:
        client.login()
        assert client.post(body, path=path, **headers)[0] == status
    (found,) = stage.server.faults
    assert fault in found


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        (f"{_TRANSFER}/Delete", "names shell 'OTHER', which was never opened"),
        (f"{_SHELL}/Signal", "names shell 'OTHER'"),
    ],
)
def test_a_shell_that_was_never_opened_is_a_fault(stage: _Stage, action: str, fault: str) -> None:
    with stage.connect() as client:
        client.login()
        client.shell = "OTHER"
        assert client.ask(action)[0] == http.HTTPStatus.INTERNAL_SERVER_ERROR
    assert fault in stage.server.faults[0]


def test_standard_input_is_a_fault(stage: _Stage) -> None:
    with stage.connect() as client:
        client.login()
        client.open()
        command = client.start("x")
        body = f'<r:Send><r:Stream Name="stdin" CommandId="{command}">eA==</r:Stream></r:Send>'
        assert client.ask(f"{_SHELL}/Send", body)[0] == http.HTTPStatus.INTERNAL_SERVER_ERROR
    assert "standard input" in stage.server.faults[-1]


def test_a_restart_drops_everything_until_it_is_over(stage: _Stage) -> None:
    stage.guest.act = lambda _write: Result(restarts=True)
    with stage.connect() as client:
        client.login()
        client.open()
        shell = client.shell
        assert client.drain(client.start("shutdown")) == (b"", b"", 0)
        with pytest.raises(_GONE):
            client.ask(f"{_TRANSFER}/Delete")
    assert stage.guest.went_down.wait(_WAIT_S)
    stage.now = 4.9
    assert not stage.server.is_available()
    with stage.connect() as client, pytest.raises(_GONE):
        client.post()
    stage.now = 5.0
    with stage.connect() as client:
        assert client.login() == http.HTTPStatus.OK
        client.shell = shell
        assert client.ask(f"{_TRANSFER}/Delete")[0] == http.HTTPStatus.INTERNAL_SERVER_ERROR
    assert stage.server.faults == ()


def test_a_client_that_does_not_trust_the_certificate_is_a_fault(stage: _Stage) -> None:
    stranger = _Client(stage.server, trustme.CA())
    with stranger, pytest.raises(ssl.SSLCertVerificationError):
        stranger.post()
    stage.server.close()
    assert any("winrm_insecure must be true" in fault for fault in stage.server.faults)


def test_the_cost_is_counted(stage: _Stage) -> None:
    with stage.connect() as client:
        client.login()
        before = stage.server.cost
        client.open()
        client.drain(client.start("x"))
        spent = stage.server.cost
    assert (spent.shells - before.shells, spent.commands - before.commands) == (1, 1)
    assert spent.messages - before.messages >= 3
    assert spent.handshakes == before.handshakes
    assert spent.bytes_in > before.bytes_in
    assert spent.bytes_out > before.bytes_out


def test_closing_ends_a_command_that_waits_to_write(stage: _Stage) -> None:
    leave = threading.Event()

    def act(write: Write) -> Result:
        while not leave.wait(0.01):
            write(b".")
        return Result()

    stage.guest.act = act
    with stage.connect() as client:
        client.login()
        client.open()
        command = client.start("x")
        assert client.receive(command)[0]
        stage.server.close()
    leave.set()
    assert stage.server.faults == ()
