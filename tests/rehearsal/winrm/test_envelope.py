"""Requests in other clients' words, and answers read back by another XML reader's eyes."""

from __future__ import annotations

import base64
from xml.etree import ElementTree as ET

import pytest

from imagegen.rehearsal.winrm import envelope
from imagegen.rehearsal.winrm.envelope import Action, Request

_SHELL = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
_REQUEST = Request(Action.RECEIVE, "uuid:1", envelope.CMD_SHELL, 60.0, "https://guest/wsman", "S", "C")


def _ask(action: str, body: str, *, timeout: str = "PT1M30S") -> bytes:
    return f"""<?xml version="1.0"?>
<e:Envelope xmlns:e="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"
  xmlns:w="http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd" xmlns:r="{_SHELL}">
 <e:Header>
  <a:Action e:mustUnderstand="true">{action}</a:Action><a:MessageID>uuid:7</a:MessageID>
  <a:To>https://guest/wsman</a:To>
  <w:ResourceURI>{_SHELL}/cmd</w:ResourceURI><w:OperationTimeout>{timeout}</w:OperationTimeout>
  <w:SelectorSet><w:Selector Name="Other">no</w:Selector><w:Selector Name="ShellId">SHELL</w:Selector></w:SelectorSet>
 </e:Header><e:Body>{body}</e:Body></e:Envelope>""".encode()


@pytest.mark.parametrize(
    ("action", "body", "command_id", "command"),
    [
        ("http://schemas.xmlsoap.org/ws/2004/09/transfer/Delete", "", "", ""),
        (
            f"{_SHELL}/Command",
            '<r:CommandLine><r:Command><![CDATA[echo a >> "%TEMP%\\b" & c]]></r:Command>'
            "<r:Arguments>/x</r:Arguments></r:CommandLine>",
            "",
            'echo a >> "%TEMP%\\b" & c /x',
        ),
        (
            f"{_SHELL}/Receive",
            '<r:Receive><r:DesiredStream CommandId="C">stdout</r:DesiredStream></r:Receive>',
            "C",
            "",
        ),
        (f"{_SHELL}/Signal", '<r:Signal CommandId="C"><r:Code>t</r:Code></r:Signal>', "C", ""),
        (f"{_SHELL}/Send", '<r:Send><r:Stream Name="stdin" CommandId="C">eA==</r:Stream></r:Send>', "C", ""),
    ],
)
def test_a_request_is_read(action: str, body: str, command_id: str, command: str) -> None:
    expected = Request(
        Action(action), "uuid:7", envelope.CMD_SHELL, 90.0, "https://guest/wsman", "SHELL", command_id, command
    )
    assert envelope.parse(_ask(action, body)) == expected


@pytest.mark.parametrize(
    ("timeout", "seconds"), [("PT0S", 0), ("PT60S", 60), ("PT10M", 600), ("PT1H2M3.5S", 3723.5), ("P1DT1S", 86401)]
)
def test_a_duration_is_read(timeout: str, seconds: float) -> None:
    assert envelope.parse(_ask(f"{_SHELL}/Signal", "", timeout=timeout)).timeout_s == seconds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not XML"),
        (b"<a/>", "not a SOAP envelope"),
        (_ask("http://schemas.xmlsoap.org/ws/2004/09/transfer/Put", ""), "unknown action"),
        (_ask(f"{_SHELL}/Command", ""), "without CommandLine"),
        (_ask(f"{_SHELL}/Signal", "", timeout="60"), "is not a duration"),
        (_ask(f"{_SHELL}/Signal", "", timeout="PT"), "is not a duration"),
    ],
)
def test_what_is_no_request_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(envelope.EnvelopeError, match=message):
        envelope.parse(body)


def _streams(answer: bytes) -> dict[str, bytes]:
    found = ET.fromstring(answer).iter(f"{{{_SHELL}}}Stream")  # noqa: S314  # this test's own answer
    return {stream.attrib["Name"]: base64.b64decode(stream.text or "") for stream in found}


@pytest.mark.parametrize(("exit_code", "state"), [(None, "Running"), (0, "Done"), (3010, "Done")])
def test_output_comes_back_as_it_was_written(exit_code: int | None, state: str) -> None:
    answer = envelope.received(_REQUEST, stdout=b"\x00\xff<&>", stderr=b"", exit_code=exit_code)
    root = ET.fromstring(answer)  # noqa: S314  # this test's own answer
    assert _streams(answer) == {"stdout": b"\x00\xff<&>"}
    (command,) = root.iter(f"{{{_SHELL}}}CommandState")
    assert command.attrib == {"CommandId": "C", "State": f"{_SHELL}/CommandState/{state}"}
    assert command.findtext(f"{{{_SHELL}}}ExitCode") == (None if exit_code is None else str(exit_code))


def test_a_new_shell_is_named_where_either_client_looks() -> None:
    root = ET.fromstring(envelope.created(_REQUEST, "NEW"))  # noqa: S314  # this test's own answer
    assert root.findtext(f".//{{{_SHELL}}}ShellId") == "NEW"
    assert root.findtext(".//{http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd}Selector[@Name='ShellId']") == "NEW"


def test_a_refusal_names_its_code_in_declared_prefixes() -> None:
    answer = envelope.refused("uuid:1", envelope.TIMED_OUT).decode()
    for part in ("wsman:TimedOut", "soap:Sender", 'Code="2150858793"', "OperationTimeout", 'xmlns:wsman="http://'):
        assert part in answer
