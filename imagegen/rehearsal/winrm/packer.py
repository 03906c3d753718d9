"""Recognises the command lines that Packer's communicator and windows-restart send on their own. Pure.

A script is recognised by the sha256 of its whole text with its values blanked, so nothing may be added, left out or
changed. A Packer with another text is not recognised until its digest is added here.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import re

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_CHUNK = re.compile(rf'echo ([A-Za-z0-9+/]+={{0,2}}) >> "%TEMP%\\(winrmcp-{_UUID}\.tmp)"')
_TEMPORARY = re.compile(rf"\$env:TEMP\\(winrmcp-{_UUID}\.tmp)")
_ENCODED = re.compile(r"powershell\.exe -EncodedCommand ([A-Za-z0-9+/]+={0,2})")
_QUOTED = re.compile(r'"([^"]*)"')
_SHOWN = 300


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A piece of an upload, appended to a temporary file."""

    file: str
    data: bytes


@dataclasses.dataclass(frozen=True)
class Restore:
    """The temporary file is complete: decode it to its destination."""

    file: str
    destination: str


@dataclasses.dataclass(frozen=True)
class Discard:
    """The temporary file is no longer needed."""

    file: str


@dataclasses.dataclass(frozen=True)
class Read:
    """A download: write the file's bytes, in base64."""

    path: str


@dataclasses.dataclass(frozen=True)
class Probe:
    """Checks once whether the machine responds, after Packer has connected."""


@dataclasses.dataclass(frozen=True)
class Restart:
    """Restart now."""


@dataclasses.dataclass(frozen=True)
class RestartTrial:
    """Schedules a restart to check whether another restart is under way."""


@dataclasses.dataclass(frozen=True)
class RestartAbort:
    """Cancels the restart that was scheduled as a check."""


@dataclasses.dataclass(frozen=True)
class RestartCheck:
    """Checks whether the machine is back."""


PackerCommand = Chunk | Restore | Discard | Read | Probe | Restart | RestartTrial | RestartAbort | RestartCheck

_LINES: dict[str, PackerCommand] = {
    'shutdown /r /f /t 0 /c "packer restart"': Restart(),
    'shutdown /r /f /t 60 /c "packer restart test"': RestartTrial(),
    "shutdown /a": RestartAbort(),
}


@dataclasses.dataclass(frozen=True)
class Scripts:
    """The digest of each script with its values blanked."""

    restore: str
    discard: str
    read: str
    probe: str
    restart_check: str


# The same in packer-plugin-sdk 0.4.0, of the oldest plugin that builds a tree, and 0.6.10, of Packer 1.16.0.
PACKER_SCRIPTS = Scripts(
    restore="d0294f8fbe4cdfd5c3c8dd768ab46072f8ba3764f0879fef6c0ba9ede9f8abfa",
    discard="dfdfe471c9937253ee1e6b22c81fc1296f41c1ecc84ca7cf483e2f50b026a057",
    read="ad82966217b9a6999d5a436e2616b31b94abfc76e21ee78bd48f4ecfa12850b7",
    probe="a34a2e0c53571b780d75e16cfa28c8e805b844069dc352543f3b7abe117d04ab",
    restart_check="47600a007fa81cebe3f4dc49761a3f44cdb37fd711b6b9de3abf6489b3a3c8b5",
)


def recognise(command: str, scripts: Scripts = PACKER_SCRIPTS) -> PackerCommand | None:
    """The Packer command of a command line; None if it is not one of Packer's own."""
    if command in _LINES:
        return _LINES[command]
    if match := _CHUNK.fullmatch(command):
        try:
            return Chunk(file=match[2], data=base64.b64decode(match[1], validate=True))
        except binascii.Error:
            return None
    text = _script(command)
    return None if text is None else _parse_script(text, scripts)


def digest(text: str, values: int) -> str:
    """The sha256 of a script's text with its first `values` quoted texts blanked."""
    # For re.sub a count of 0 means all.
    blanked = _QUOTED.sub('""', text, count=values) if values else text
    return hashlib.sha256(blanked.encode()).hexdigest()


def readable(command: str) -> str:
    """A command line as messages show it: decoded, on one line, cut."""
    script = _script(command)
    text = " ".join(command.split()) if script is None else f"the script {' '.join(script.split())}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _parse_script(text: str, scripts: Scripts) -> PackerCommand | None:
    values = _QUOTED.findall(text)
    if digest(text, 2) == scripts.restore and (temporary := _TEMPORARY.fullmatch(values[0])):
        return Restore(file=temporary[1], destination=values[1])
    if digest(text, 1) == scripts.discard and (temporary := _TEMPORARY.fullmatch(values[0])):
        return Discard(file=temporary[1])
    if digest(text, 1) == scripts.read:
        return Read(path=values[0])
    if digest(text, 0) == scripts.probe:
        return Probe()
    if digest(text, 0) == scripts.restart_check:
        return RestartCheck()
    return None


def _script(command: str) -> str | None:
    match = _ENCODED.fullmatch(command)
    if match is None:
        return None
    try:
        return base64.b64decode(match[1], validate=True).decode("utf-16-le")
    except (binascii.Error, UnicodeDecodeError):
        return None
