"""Packer's official release from a server that plays HashiCorp's."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import socket
import threading
import time
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ExitCode, ToolError, VerificationError
from imagegen.build import tools
from imagegen.build.tools import HOST, OfficialReleases, find_tools
from imagegen.fetch.http import UnreachableError, read_starts
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response
from imagegen.rehearsal.network.network import Network
from tests.deadlines import HANG_S
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = pytest.mark.e2e

PACKER = b"#!/bin/sh\necho Packer v1.16.0\n"
BASE = "/packer/1.16.0/packer_1.16.0_"
ZIP = f"{BASE}linux_amd64.zip"
PAGE = Response(200, b"<!doctype html><p>Blocked by policy", (("Content-Type", "text/html"),))


def zipped(*members: tuple[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    return file.getvalue()


@dataclasses.dataclass
class Server:
    """What HashiCorp's server has; `instead` is answered in the place of a file."""

    files: dict[str, bytes]
    instead: dict[str, Response] = dataclasses.field(default_factory=dict)

    def __call__(self, request: Request) -> Response:
        assert request.method == "GET"
        data = self.files.get(request.path)
        return self.instead.get(request.path) or (Response(404) if data is None else Response(200, data))


def published(archive: bytes) -> Server:
    return Server({ZIP: archive})


def good() -> Server:
    return published(zipped(("LICENSE.txt", b"the licence"), ("packer", PACKER)))


@pytest.fixture(autouse=True)
def _on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def releases_of(server: Server) -> OfficialReleases:
    """Releases whose table has the sha256 of what the server has."""
    return OfficialReleases({"linux_amd64": hashlib.sha256(server.files[ZIP]).hexdigest()})


@pytest.fixture
def releases() -> OfficialReleases:
    return releases_of(good())


@contextlib.contextmanager
def serving(server: Server, folder: Path) -> Iterator[Mapping[str, str]]:
    with Network(folder / "network", hosts={HOST: server}) as network:
        yield network.environ
        assert network.faults == []


def fetch(server: Server, releases: OfficialReleases, folder: Path) -> Path:
    binary = folder / "cache" / "packer-v1.16.0" / "packer"
    binary.parents[1].mkdir(exist_ok=True)
    with serving(server, folder) as environ:
        releases.fetch_packer(binary, environ=environ, console=Console(io.StringIO(), plain=True))
    return binary


def test_a_release_becomes_the_packer_of_the_cache(releases: OfficialReleases, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": "/nowhere"}
    console = Console(io.StringIO(), plain=True)
    with serving(good(), tmp_path) as environ:
        tools = find_tools(environ={**environ, **home}, console=console, needed=[], releases=releases)
    cache = tmp_path / "cache" / "imagegen"
    assert (tools.packer, tools.packer_version) == (cache / "packer-v1.16.0" / "packer", "1.16.0")
    assert tools.packer.read_bytes() == PACKER
    assert sorted(path.name for path in tools.packer.parent.iterdir()) == ["packer"]
    assert sorted(path.name for path in cache.iterdir()) == ["packer-v1.16.0", "tools.lock"]
    again = find_tools(environ=home, console=console, needed=[], releases=releases)
    assert again == tools


def test_it_takes_the_place_of_an_older_one(releases: OfficialReleases, tmp_path: Path) -> None:
    old = tmp_path / "cache" / "packer-v1.16.0" / "packer"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    assert fetch(good(), releases, tmp_path).read_bytes() == PACKER


def altered(server: Server) -> None:
    data = bytearray(server.files[ZIP])
    data[-9] ^= 1
    server.instead[ZIP] = Response(200, bytes(data))


def holding(*members: tuple[str, bytes]) -> Callable[[Server], object]:
    return lambda server: server.files.update(published(zipped(*members)).files)


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (altered, "but [0-9a-f]{64} is expected"),
        (
            lambda server: server.files.update(published(b"no archive").files),
            "cannot be unpacked: File is not a zip file",
        ),
        (holding(("../packer", PACKER)), "must hold one file packer, not 0"),
        (holding(("packer", PACKER), ("packer", b"evil")), "must hold one file packer, not 2"),
        (holding(("packer", bytes(3000))), "packer in HashiCorp's archive has 3000 bytes"),
    ],
    ids=["zip", "no-zip", "path", "two", "huge"],
)
def test_wrong_bytes_end_it(
    change: Callable[[Server], object],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tools, "LARGEST_BYTES", 2999)
    server = good()
    change(server)
    with pytest.raises(VerificationError, match=why) as caught:
        fetch(server, releases_of(server), tmp_path)
    assert caught.value.exit_code == ExitCode.VERIFICATION
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (
            {ZIP: dataclasses.replace(PAGE, headers=())},
            "linux_amd64.zip cannot be downloaded: a login page or a web filter answered instead",
        ),
        ({ZIP: Response(403)}, "the server responded with status 403"),
        ({ZIP: Response(404)}, "the server responded with status 404"),
        ({ZIP: Response(302, headers=(("Location", "http://login.example/"),))}, "must start with https://"),
        ({ZIP: HANG_UP}, "the connection was cut before the end of the response"),
    ],
    ids=["page", "forbidden", "absent", "login", "cut"],
)
def test_a_server_that_does_not_have_it_is_no_fault(
    instead: dict[str, Response], why: str, releases: OfficialReleases, tmp_path: Path
) -> None:
    server = good()
    server.instead |= instead
    with pytest.raises(UnreachableError, match=why):
        fetch(server, releases, tmp_path)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_system_without_a_release_is_not_asked_for(
    releases: OfficialReleases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(UnreachableError, match="no Packer for linux on riscv64"):
        releases.fetch_packer(tmp_path / "x" / "packer", environ={}, console=Console(io.StringIO(), plain=True))


def test_a_system_without_a_known_sha256_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="knows no sha256 of HashiCorp's Packer for linux_amd64"):
        OfficialReleases({}).fetch_packer(tmp_path / "x" / "p", environ={}, console=Console(io.StringIO(), plain=True))


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_network_that_swallows_everything_costs_a_bounded_time() -> None:
    # The system accepts the connection, and nobody ever answers.
    with listening() as (_, proxy):
        began = time.monotonic()
        with pytest.raises(UnreachableError, match=r"did not arrive within 0\.2 s"):
            read_starts([f"https://{HOST}/x"], 1, environ={"HTTPS_PROXY": proxy}, within_s=0.2)
        assert time.monotonic() - began < 3


def test_a_dead_proxy_is_known_at_once_and_go_is_then_named(tmp_path: Path) -> None:
    with listening() as (_, proxy):
        pass
    environ = {"HTTPS_PROXY": proxy, "HOME": str(tmp_path), "PATH": "/nowhere"}
    with pytest.raises(ToolError) as caught:
        find_tools(environ=environ, console=Console(io.StringIO(), plain=True), needed=PLUGINS.values())
    assert caught.value.hint.splitlines()[-1].startswith("or install Go")
    assert "Connection refused" in caught.value.details[-1]


def test_a_proxy_that_refuses_is_an_obstacle() -> None:
    def refuse(listener: socket.socket) -> None:
        with listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    with listening() as (listener, proxy):
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        with pytest.raises(UnreachableError, match="407"):
            OfficialReleases().check_reachable({"HTTPS_PROXY": proxy})
        thread.join(HANG_S)


def test_a_proxy_that_cannot_be_used_is_an_obstacle() -> None:
    with pytest.raises(UnreachableError, match="must start with http:// or https://"):
        OfficialReleases().check_reachable({"HTTPS_PROXY": "socks5://127.0.0.1:9"})
