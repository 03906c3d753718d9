"""What logs.ps1 brings from the machine of a failed build: which files, and how much of each."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.base.contents import PACKER
from imagegen.rehearsal.machine import guest_logs
from imagegen.rehearsal.machine.windows import Machine

if TYPE_CHECKING:
    import pytest

_ENGINE = r"C:\ProgramData\imagegen\engine.log"
_SCRIPT = (PACKER / "guest" / "logs.ps1").read_text("ascii")


def _collect(machine: Machine) -> dict[str, bytes]:
    lines = [line.removeprefix("imagegen-logs: ") for line in guest_logs.print_logs(machine).output.splitlines()]
    assert (lines[0].partition(" ")[0], lines[-1]) == ("begin", "end")
    assert max(map(len, lines)) <= guest_logs.LINE_LENGTH
    with zipfile.ZipFile(io.BytesIO(base64.b64decode("".join(lines[1:-1])))) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _put(machine: Machine, path: str, data: bytes) -> None:
    machine.files.make_folder(path.rpartition("\\")[0])
    machine.files.write(path, data)


def _machine(folder: Path) -> Machine:
    return Machine(folder, features={}, needing_restart=())


def test_the_places_and_limits_are_the_scripts_own() -> None:
    listed = _SCRIPT[_SCRIPT.index("$script:Places = @(") : _SCRIPT.index("$script:FileLimit")]
    assert tuple(re.findall(r"@\('([^']*)', '([^']*)', '([^']*)'\)", listed)) == guest_logs.PLACES
    numbers = dict(re.findall(r"\$script:(\w+) = (\d+)", _SCRIPT))
    names = {"FileLimit": guest_logs.FILE_LIMIT, "Left": guest_logs.TOTAL_LIMIT}
    assert {name: int(numbers[name]) for name in (*names, "LineLength")} == {
        **names,
        "LineLength": guest_logs.LINE_LENGTH,
    }


def test_logs_are_brought_and_nothing_else(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    brought = {
        _ENGINE: "imagegen/engine.log",
        r"C:\ProgramData\imagegen\state.json": "imagegen/state.json",
        r"C:\Windows\Logs\CBS\CBS.log": "cbs/CBS.log",
        r"C:\Windows\Logs\DISM\dism.log": "dism/dism.log",
        r"C:\Windows\Panther\setupact.log": "panther/setupact.log",
        r"C:\Windows\System32\Sysprep\Panther\setuperr.log": "sysprep/setuperr.log",
        r"C:\var\log\containerd\containerd.log": "containerd/containerd.log",
        r"C:\var\log\kubelet\kubelet.log": "kubelet/kubelet.log",
    }
    # An answer file may hold a password, and the report tells what the build did.
    others = (
        r"C:\Windows\Panther\unattend.xml",
        r"C:\ProgramData\imagegen\report.json",
        r"C:\ProgramData\imagegen\bundle\engine.log",
    )
    for path in (*brought, *others):
        _put(machine, path, path.encode())
    assert _collect(machine) == {name: path.encode() for path, name in brought.items()} | {"notes.txt": b""}


def test_of_long_logs_the_end_is_brought(tmp_path: Path) -> None:
    machine = _machine(tmp_path)
    _put(machine, _ENGINE, b"old" + b"x" * guest_logs.FILE_LIMIT + b"new")
    found = _collect(machine)["imagegen/engine.log"]
    assert (len(found), found[:1], found[-3:]) == (guest_logs.FILE_LIMIT, b"x", b"new")


def test_all_together_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_logs, "TOTAL_LIMIT", 7)
    machine = _machine(tmp_path)
    _put(machine, _ENGINE, b"1234")
    _put(machine, r"C:\Windows\Logs\CBS\CBS.log", b"5678")
    _put(machine, r"C:\Windows\Logs\DISM\dism.log", b"7")
    left_out = rb"C:\Windows\Logs\DISM\dism.log: left out"
    # Of what is left an even number, because a log may be UTF-16.
    assert _collect(machine) == {"imagegen/engine.log": b"1234", "cbs/CBS.log": b"78", "notes.txt": left_out}


def test_a_machine_without_logs_says_so(tmp_path: Path) -> None:
    assert _collect(_machine(tmp_path)) == {"notes.txt": b""}
