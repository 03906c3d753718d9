"""Parses WS-Management requests and builds the responses. Pure.

The protocol is MS-WSMV: https://learn.microsoft.com/openspecs/windows_protocols/ms-wsmv/
"""

from __future__ import annotations

import dataclasses
import enum
import re
import uuid
from base64 import b64encode
from xml.etree import ElementTree as ET

_SOAP = "http://www.w3.org/2003/05/soap-envelope"
_ADDRESSING = "http://schemas.xmlsoap.org/ws/2004/08/addressing"
_TRANSFER = "http://schemas.xmlsoap.org/ws/2004/09/transfer"
_WSMAN = "http://schemas.dmtf.org/wbem/wsman/1/wsman.xsd"
_SHELL = "http://schemas.microsoft.com/wbem/wsman/1/windows/shell"
_WSMAN_FAULT = "http://schemas.microsoft.com/wbem/wsman/1/wsmanfault"
_XML = "http://www.w3.org/XML/1998/namespace"

CMD_SHELL = f"{_SHELL}/cmd"

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
_SECONDS = (86_400, 3_600, 60, 1)


class Action(enum.Enum):
    """The actions of a shell."""

    CREATE = f"{_TRANSFER}/Create"
    DELETE = f"{_TRANSFER}/Delete"
    COMMAND = f"{_SHELL}/Command"
    SEND = f"{_SHELL}/Send"
    RECEIVE = f"{_SHELL}/Receive"
    SIGNAL = f"{_SHELL}/Signal"


class EnvelopeError(Exception):
    """The bytes are not a request of this protocol."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A request. Parts that its action does not have are empty."""

    action: Action
    message_id: str
    resource: str
    timeout_s: float
    to: str
    shell_id: str = ""
    command_id: str = ""
    command: str = ""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of the protocol: SOAP subcode (empty for none), WinRM's number, text."""

    subcode: str
    code: int
    text: str


NO_SHELL = Fault("InvalidSelectors", 2150858843, "The shell was not found on the server.")
NO_COMMAND = Fault("InvalidParameter", 2150858843, "The command was not found in the shell.")
NO_RESOURCE = Fault("DestinationUnreachable", 2150858752, "The resource URI is not known to this service.")
NO_INPUT = Fault("UnsupportedFeature", 2150858811, "No command of this machine takes standard input.")
# The client searches the text for OperationTimeout and then repeats the request.
TIMED_OUT = Fault(
    "TimedOut", 2150858793, "The operation did not complete within the time that OperationTimeout allows."
)


def parse(body: bytes) -> Request:
    """Parse a request."""
    try:
        root = ET.fromstring(body)  # noqa: S314  # an authenticated client on loopback, at most one envelope long
    except ET.ParseError as error:
        raise EnvelopeError(f"not XML: {error}") from error
    header = root.find(f"{{{_SOAP}}}Header")
    content = root.find(f"{{{_SOAP}}}Body")
    if root.tag != f"{{{_SOAP}}}Envelope" or header is None or content is None:
        raise EnvelopeError("not a SOAP envelope with header and body")
    word = _text(header, f"{{{_ADDRESSING}}}Action")
    try:
        action = Action(word)
    except ValueError as error:
        raise EnvelopeError(f"unknown action {word!r}") from error
    inner = next(iter(content), None)
    selector = header.find(f"{{{_WSMAN}}}SelectorSet/{{{_WSMAN}}}Selector[@Name='ShellId']")
    return Request(
        action=action,
        message_id=_text(header, f"{{{_ADDRESSING}}}MessageID"),
        resource=_text(header, f"{{{_WSMAN}}}ResourceURI"),
        timeout_s=_seconds(_text(header, f"{{{_WSMAN}}}OperationTimeout")),
        to=_text(header, f"{{{_ADDRESSING}}}To"),
        shell_id="" if selector is None else (selector.text or ""),
        command_id=_command_id(inner),
        command=_command_line(inner) if action is Action.COMMAND else "",
    )


def created(request: Request, shell_id: str) -> bytes:
    """The response that a shell is open. As on Windows it has the id twice: older clients read one, newer the other."""
    resource = ET.Element(f"{{{_TRANSFER}}}ResourceCreated")
    ET.SubElement(resource, f"{{{_ADDRESSING}}}Address").text = request.to
    reference = ET.SubElement(resource, f"{{{_ADDRESSING}}}ReferenceParameters")
    ET.SubElement(reference, f"{{{_WSMAN}}}ResourceURI").text = CMD_SHELL
    selectors = ET.SubElement(reference, f"{{{_WSMAN}}}SelectorSet")
    ET.SubElement(selectors, f"{{{_WSMAN}}}Selector", Name="ShellId").text = shell_id
    shell = ET.Element(f"{{{_SHELL}}}Shell")
    ET.SubElement(shell, f"{{{_SHELL}}}ShellId").text = shell_id
    ET.SubElement(shell, f"{{{_SHELL}}}ResourceUri").text = CMD_SHELL
    ET.SubElement(shell, f"{{{_SHELL}}}InputStreams").text = "stdin"
    ET.SubElement(shell, f"{{{_SHELL}}}OutputStreams").text = "stdout stderr"
    return _envelope(request.message_id, f"{_TRANSFER}/CreateResponse", resource, shell)


def deleted(request: Request) -> bytes:
    """The response that a shell is closed."""
    return _envelope(request.message_id, f"{_TRANSFER}/DeleteResponse")


def started(request: Request, command_id: str) -> bytes:
    """The response that a command has started."""
    response = ET.Element(f"{{{_SHELL}}}CommandResponse")
    ET.SubElement(response, f"{{{_SHELL}}}CommandId").text = command_id
    return _envelope(request.message_id, f"{_SHELL}/CommandResponse", response)


def signalled(request: Request) -> bytes:
    """The response to a signal."""
    return _envelope(request.message_id, f"{_SHELL}/SignalResponse", ET.Element(f"{{{_SHELL}}}SignalResponse"))


def received(request: Request, *, stdout: bytes, stderr: bytes, exit_code: int | None) -> bytes:
    """The response with new output of a command, and with its exit code if it has ended."""
    response = ET.Element(f"{{{_SHELL}}}ReceiveResponse")
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        if data:
            stream = ET.SubElement(response, f"{{{_SHELL}}}Stream", Name=name, CommandId=request.command_id)
            stream.text = b64encode(data).decode("ascii")
    word = "Running" if exit_code is None else "Done"
    state = ET.SubElement(
        response,
        f"{{{_SHELL}}}CommandState",
        CommandId=request.command_id,
        State=f"{_SHELL}/CommandState/{word}",
    )
    if exit_code is not None:
        ET.SubElement(state, f"{{{_SHELL}}}ExitCode").text = str(exit_code)
    return _envelope(request.message_id, f"{_SHELL}/ReceiveResponse", response)


def refused(message_id: str, fault: Fault) -> bytes:
    """The response with a fault."""
    body = ET.Element(f"{{{_SOAP}}}Fault")
    code = ET.SubElement(body, f"{{{_SOAP}}}Code")
    ET.SubElement(code, f"{{{_SOAP}}}Value").text = "soap:Sender"
    ET.SubElement(ET.SubElement(code, f"{{{_SOAP}}}Subcode"), f"{{{_SOAP}}}Value").text = f"wsman:{fault.subcode}"
    reason = ET.SubElement(ET.SubElement(body, f"{{{_SOAP}}}Reason"), f"{{{_SOAP}}}Text")
    reason.set(f"{{{_XML}}}lang", "en-US")
    reason.text = fault.text
    detail = ET.SubElement(body, f"{{{_SOAP}}}Detail")
    inner = ET.SubElement(detail, f"{{{_WSMAN_FAULT}}}WSManFault", Code=str(fault.code))
    ET.SubElement(inner, f"{{{_WSMAN_FAULT}}}Message").text = fault.text
    return _envelope(message_id, "http://schemas.dmtf.org/wbem/wsman/1/wsman/fault", body)


def _envelope(relates_to: str, action: str, *content: ET.Element) -> bytes:
    root = ET.Element(f"{{{_SOAP}}}Envelope")
    # The Value elements of a fault hold QNames as text, which ElementTree does not see: declare their prefixes.
    root.set("xmlns:soap", _SOAP)
    root.set("xmlns:wsman", _WSMAN)
    header = ET.SubElement(root, f"{{{_SOAP}}}Header")
    ET.SubElement(header, f"{{{_ADDRESSING}}}Action").text = action
    ET.SubElement(header, f"{{{_ADDRESSING}}}MessageID").text = f"uuid:{uuid.uuid4()}"
    ET.SubElement(header, f"{{{_ADDRESSING}}}RelatesTo").text = relates_to
    body = ET.SubElement(root, f"{{{_SOAP}}}Body")
    body.extend(content)
    document: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _text(parent: ET.Element, path: str) -> str:
    return (parent.findtext(path) or "").strip()


def _command_line(inner: ET.Element | None) -> str:
    if inner is None or inner.tag != f"{{{_SHELL}}}CommandLine":
        raise EnvelopeError("a Command request without CommandLine")
    words = [inner.findtext(f"{{{_SHELL}}}Command") or ""]
    words += [argument.text or "" for argument in inner.findall(f"{{{_SHELL}}}Arguments")]
    return " ".join(words)


def _command_id(inner: ET.Element | None) -> str:
    if inner is None:
        return ""
    return next((element.attrib["CommandId"] for element in inner.iter() if "CommandId" in element.attrib), "")


def _seconds(duration: str) -> float:
    match = _DURATION.fullmatch(duration)
    if match is None or not any(match.groups()):
        raise EnvelopeError(f"OperationTimeout {duration!r} is not a duration")
    return sum(float(part) * unit for part, unit in zip(match.groups(), _SECONDS, strict=True) if part)
