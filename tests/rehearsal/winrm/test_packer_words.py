"""What Packer's own commands mean, on scripts of the test's own wording; the real wording is proven end to end."""

from __future__ import annotations

import base64

import pytest

from imagegen.rehearsal.winrm import packer

_FILE = "winrmcp-0d2ae2d2-0a8e-4b6f-8f6d-6d1b1f1d2c3e.tmp"
_RESTORE = 'decode "{}" to "{}", mind the "quotes"'
_DISCARD = 'drop "{}"'
_READ = 'give "{}"'
_PROBE = "say hello"
_CHECK = "say back"
SCRIPTS = packer.Scripts(
    restore=packer.digest(_RESTORE, 2),
    discard=packer.digest(_DISCARD, 1),
    read=packer.digest(_READ, 1),
    probe=packer.digest(_PROBE, 0),
    restart_check=packer.digest(_CHECK, 0),
)


def _encoded(script: str) -> str:
    return f"powershell.exe -EncodedCommand {base64.b64encode(script.encode('utf-16-le')).decode()}"


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (f'echo aGVsbG8= >> "%TEMP%\\{_FILE}"', packer.Chunk(_FILE, b"hello")),
        (_encoded(_RESTORE.format(f"$env:TEMP\\{_FILE}", r"C:\a.zip")), packer.Restore(_FILE, r"C:\a.zip")),
        (_encoded(_DISCARD.format(f"$env:TEMP\\{_FILE}")), packer.Discard(_FILE)),
        (_encoded(_READ.format(r"C:\report.json")), packer.Read(r"C:\report.json")),
        (_encoded(_PROBE), packer.Probe()),
        (_encoded(_CHECK), packer.RestartCheck()),
        ('shutdown /r /f /t 0 /c "packer restart"', packer.Restart()),
        ('shutdown /r /f /t 60 /c "packer restart test"', packer.RestartTrial()),
        ("shutdown /a", packer.RestartAbort()),
    ],
)
def test_a_word_of_packers_is_known(command: str, word: packer.PackerCommand) -> None:
    assert packer.recognise(command, SCRIPTS) == word


@pytest.mark.parametrize(
    "command",
    [
        "",
        "whoami",
        f'echo aGVsbG8= >> "C:\\{_FILE}"',
        f'echo aGVsbG8 >> "%TEMP%\\{_FILE}"',
        f'echo aGVsbG8= >> "%TEMP%\\{_FILE}" & whoami',
        'echo aGVsbG8= >> "%TEMP%\\other.tmp"',
        'shutdown /r /f /t 1 /c "packer restart"',
        "shutdown /a & whoami",
        _encoded(f"{_PROBE}; whoami"),
        _encoded(f"{_READ.format('C:/report.json')} "),
        _encoded(_DISCARD.format(r"C:\Windows\System32")),
        _encoded(_RESTORE.format(r"C:\somewhere.tmp", r"C:\a.zip")),
        _encoded(_RESTORE.replace("quotes", "qu0tes").format(f"$env:TEMP\\{_FILE}", r"C:\a.zip")),
        f"{_encoded(_PROBE)} -NoProfile",
        "powershell.exe -EncodedCommand AAA",
        "powershell.exe -EncodedCommand AAAA",
    ],
)
def test_anything_else_is_unknown(command: str) -> None:
    assert packer.recognise(command, SCRIPTS) is None


def test_a_script_of_ones_own_wording_is_unknown_to_the_real_table() -> None:
    assert packer.recognise(_encoded(_PROBE)) is None


def test_a_message_shows_a_script_decoded_on_one_line_and_cut() -> None:
    assert packer.readable(_encoded("one\r\n\ttwo")) == "the script one two"
    assert packer.readable("x" * 1_000) == "x" * 300 + "…"
