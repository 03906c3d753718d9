"""The logs of a failed build's machine come before it is deleted: real Packer asks the model machine for them."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.machine.refusal import KilledError, RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.stock import SYSPREP_STATUS
from tests.e2e.rehearsal_support import TARGETS, rehearse_tree, rendered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.sandbox import Sandbox
    from imagegen.rehearsal.winrm.server import WinRMServer

    Change = Callable[[Machine], object]

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

_DISM = r"C:\Windows\Logs\DISM\dism.log"
_PANTHER = r"C:\Windows\System32\Sysprep\Panther"
_SECRET = "Pa55word!of-mine"  # noqa: S105 - a mark


def _prepare(change: Change) -> Callable[[Sandbox], None]:
    def hook(_identity: MachineIdentity, machine: Machine, _server: WinRMServer) -> None:
        machine.files.make_folder(r"C:\Windows\Logs\DISM")
        machine.files.write(_DISM, f"Info winrm_password={_SECRET}\r\n".encode())
        change(machine)

    return lambda sandbox: sandbox.machine_hooks.append(hook)


def _read(folder: Path) -> dict[str, str]:
    with zipfile.ZipFile(folder / "guest-logs.zip") as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def _fail_a_service(machine: Machine) -> None:
    def refuse(resource: str) -> None:
        if "/service:" in resource:
            raise RefusedByWindows("The specified service has been marked for deletion. (1072)")

    machine.before_set = refuse


def _kill_the_engine(machine: Machine) -> None:
    """No code of the engine runs after this, so no line of it says what it was doing."""

    def kill(resource: str) -> None:
        if "/service:" in resource:
            raise KilledError(resource)

    machine.before_set = kill


def _refuse_the_seal(machine: Machine) -> None:
    def refuse() -> None:
        machine.registry.make_key(SYSPREP_STATUS)
        machine.registry.write(SYSPREP_STATUS, "GeneralizationState", Value("DWord", 3))
        machine.files.make_folder(_PANTHER)
        machine.files.write(rf"{_PANTHER}\setuperr.log", b"Error SYSPRP refuses\r\n")

    machine.before_restart = refuse


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("change", "words", "name", "text"),
    [
        (_fail_a_service, "marked for deletion. (1072)", "imagegen/engine.log", '"status": "failed"'),
        (
            _kill_the_engine,
            "Packer failed: Script exited with non-zero exit status: 1.",
            "imagegen/engine.log",
            '"status": "changed"',
        ),
        (_refuse_the_seal, "Script exited with non-zero exit status: 1.", "sysprep/setuperr.log", "SYSPRP refuses"),
    ],
    ids=["resource", "killed", "seal"],
)
def test_the_logs_of_a_failed_build_are_here(
    target: str, change: Change, words: str, name: str, text: str, tmp_path: Path
) -> None:
    verdict = rehearse_tree(target, rendered(target), tmp_path, prepare=_prepare(change))
    assert not verdict.passed
    assert words in verdict.words
    assert f"the logs of the machine: {tmp_path / 'guest-logs.zip'}" in verdict.words
    found = _read(tmp_path)
    assert text in found[name]
    assert "winrm_password=***" in found["dism/dism.log"]
    assert _SECRET not in "".join(found.values())
    assert "imagegen-logs" not in (tmp_path / "packer.log").read_text()


def test_a_build_that_passes_asks_for_nothing(tmp_path: Path) -> None:
    verdict = rehearse_tree("azure", rendered("azure"), tmp_path)
    assert verdict.passed, verdict.words
    assert "guest/logs.ps1" not in (tmp_path / "packer.log").read_text()
    assert not (tmp_path / "guest-logs.zip").exists()
