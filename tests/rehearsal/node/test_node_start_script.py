"""The model of start-kubelet.ps1 knows the script's parts, and refuses bytes that it does not know."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.node.start_script import Outcome, read_parameters, read_script, run_script
from tests.node_support import FLAGS, SCRIPT, make_machine

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {
    "reads_flags": b" + @(Read-KubeadmArgument -Path $flags)",
    "waits_for_flags": next(line for line in SCRIPT.splitlines(keepends=True) if b"if ($joining)" in line),
    "waits_for_kubeadm": next(line for line in SCRIPT.splitlines(keepends=True) if b"'kubeadm'" in line),
    "leaves_before_join": next(line for line in SCRIPT.splitlines(keepends=True) if b"has not joined" in line),
}


def test_the_shipped_script_has_all_parts() -> None:
    assert all(dataclasses.asdict(read_script(SCRIPT, "start-kubelet.ps1")).values())


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_is_seen(part: str) -> None:
    found = dataclasses.asdict(read_script(SCRIPT.replace(PARTS[part], b""), "start-kubelet.ps1"))
    assert [name for name, is_there in found.items() if not is_there] == [part]


def test_a_comment_changes_nothing() -> None:
    assert read_script(b"# Another word.\n" + SCRIPT, "start-kubelet.ps1") == read_script(SCRIPT, "start-kubelet.ps1")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"-Seconds 60", b"-Seconds 6"), (b"--windows-service", b"--other"), (b"-Seconds 20", b"-Seconds 2")],
)
def test_any_other_script_is_refused_by_name(old: bytes, new: bytes) -> None:
    assert old in SCRIPT
    with pytest.raises(UnknownCommandError, match=r"start-kubelet\.ps1 is not the script"):
        read_script(SCRIPT.replace(old, new), r"C:\k\start-kubelet.ps1")


@pytest.mark.parametrize("words", [["-Other", "x"], ["-Kubelet"], ["C:\\k\\kubelet.exe", "-Kubelet"]])
def test_a_parameter_that_the_script_does_not_have_is_refused(words: list[str]) -> None:
    with pytest.raises(UnknownCommandError, match=r"start-kubelet\.ps1"):
        read_parameters(words)


@pytest.mark.parametrize("are_written", [False, True])
def test_the_flags_are_looked_for_once_more_at_the_end(tmp_path: Path, *, are_written: bool) -> None:
    """kubeadm may write them in the last moment."""
    machine = make_machine(tmp_path, "1.34.2")
    for path in (r"C:\var\lib\kubelet\config.yaml", r"C:\etc\kubernetes\bootstrap-kubelet.conf"):
        machine.files.make_folder(path.rpartition("\\")[0])
        machine.files.write(path, b"x")
    script = run_script(machine, read_script(SCRIPT, "start-kubelet.ps1"), read_parameters([]), r"C:\k")
    outcome: Outcome | None = None
    end, sleeps = machine.up_s + 20, 0
    while outcome is None:
        if are_written and machine.up_s >= end and not machine.files.is_file(FLAGS):
            machine.files.write(FLAGS, b'KUBELET_KUBEADM_ARGS="--v=2"')
        try:
            seconds = next(script)
        except StopIteration as ended:
            outcome = ended.value
        else:
            sleeps += machine.up_s >= end
            machine.up_s += seconds
    assert sleeps == int(not are_written)
    assert ("--v=2" in outcome.arguments) == are_written


def test_kubelet_runs_plugins_of_its_closed_folder_only(tmp_path: Path) -> None:
    r"""Its default from 1.30 on is below C:\usr, and it makes that folder with the rights of the drive."""
    machine = make_machine(tmp_path, "1.36.4")
    machine.files.make_folder(r"C:\var\lib\kubelet")
    machine.files.write(r"C:\var\lib\kubelet\config.yaml", b"x")
    script = run_script(machine, read_script(SCRIPT, "start-kubelet.ps1"), read_parameters([]), r"D:\own")
    with pytest.raises(StopIteration) as ended:
        next(script)
    assert r"--volume-plugin-dir=D:\own\volumeplugins" in ended.value.value.arguments
    assert rb'"--volume-plugin-dir=$PSScriptRoot\volumeplugins"' in SCRIPT
