"""The model of start-kubelet.ps1 knows the script's parts, and refuses bytes that it does not know."""

from __future__ import annotations

import dataclasses

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.node.start_script import read_parameters, read_script
from tests.node_support import SCRIPT

PARTS = {
    "reads_flags": b' + @(Read-KubeadmArgument -Path "$StateFolder\\kubeadm-flags.env")',
    "waits_for_flags": next(line for line in SCRIPT.splitlines(keepends=True) if b"if ($joining)" in line),
    "waits_for_kubeadm": SCRIPT[SCRIPT.index(b"while (-not [System.IO.File]::Exists(") :].partition(b"\n}\n")[0]
    + b"\n}\n",
    "leaves_before_join": SCRIPT[SCRIPT.index(b'if (-not [System.IO.File]::Exists("$StateFolder') :].partition(
        b"\n}\n"
    )[0]
    + b"\n}\n",
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
    [(b"-lt 60", b"-lt 6"), (b"--windows-service", b"--other"), (b"TimeoutSeconds 20", b"TimeoutSeconds 2")],
)
def test_any_other_script_is_refused_by_name(old: bytes, new: bytes) -> None:
    assert old in SCRIPT
    with pytest.raises(UnknownCommandError, match=r"start-kubelet\.ps1 is not the script"):
        read_script(SCRIPT.replace(old, new), r"C:\k\start-kubelet.ps1")


@pytest.mark.parametrize("words", [["-Other", "x"], ["-Kubelet"], ["C:\\k\\kubelet.exe", "-Kubelet"]])
def test_a_parameter_that_the_script_does_not_have_is_refused(words: list[str]) -> None:
    with pytest.raises(UnknownCommandError, match=r"start-kubelet\.ps1"):
        read_parameters(words)
