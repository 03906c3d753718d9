"""Every fault of `--fault` in a whole rehearsal: its exit code and its messages."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.rehearsal.faults.table import FAULTS
from tests.deadlines import HANG_S
from tests.e2e.rehearsal_support import CONFIG, TARGETS, imagegen, processes_with, user_environ

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.build.process import Completed

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

# Most of them wait for a cloud, for Packer's plugin or for a timeout.
_AT_ONCE = 5
_DEADLINE_S = HANG_S


@dataclasses.dataclass(frozen=True)
class Case:
    """One rehearsal, and what it says of its faults; the sets keep it short."""

    faults: tuple[str, ...]
    words: tuple[str, ...]
    sets: tuple[str, ...] = ()


CASES = {
    "aws": (
        # The longest first.
        Case(("same-client-token",), ("ami-0123456789abcdef0 in us-west-2 no longer exists: starting another copy",)),
        Case(
            ("capacity",),
            ("warning: m6i.large is not available now (InsufficientInstanceCapacity): trying m5.large",),
            ("targets.aws.publish.regions=[]",),
        ),
        Case(
            ("silent-guest",),
            ("error: Packer failed: Timeout waiting for machine to restart.", "  no logs of the machine: Error"),
        ),
        Case(
            ("server-error", "dropped-connection", "throttle"),
            ("to us-west-2 starts later: RequestLimitExceeded",),
        ),
        Case(
            ("copy-fails",),
            (
                "in us-west-2, is failed: Client.InternalError: Copy image failed with an internal error.",
                "hint: deregister it, or run `imagegen janitor --delete`; then run the same command again: ",
                "continues, and keeps finished copies",
            ),
        ),
        Case(("region-not-enabled",), ("aws account enable-region --region-name us-west-2",)),
        Case(
            ("resource-fails",),
            (
                "service:W32Time: The specified service has been marked for deletion. (1072)",
                "  the logs of the machine: ",
            ),
        ),
        Case(
            ("engine-killed",),
            ("error: Packer failed: Script exited with non-zero exit status: 1.", "  the logs of the machine: "),
        ),
        Case(("winrm-away",), ("rehearsal passed in ",)),
        Case(("wrong-bytes",), ("kube-log-runner.exe: sha256 is ", ", the plan says ")),
        Case(
            ("wrong-report",),
            (
                "error: no image was made: the report is of another build: plan_sha256 is 000",
                "  the logs of the machine",
            ),
        ),
        Case(
            ("quota",),
            ("trying m5.large", "error: Packer failed: Error launching source instance", "VcpuLimitExceeded"),
        ),
        Case(
            ("html-page",),
            ("answered 403 with an HTML page: a proxy or web filter answered instead of AWS",),
        ),
    ),
    "azure": (
        Case(
            ("silent-guest",),
            ("error: Packer failed: Timeout waiting for machine to restart.", "  no logs of the machine: Error"),
        ),
        Case(
            ("server-error", "dropped-connection", "throttle", "capacity"),
            ("warning: Standard_D4s_v5 is not available now (SkuNotAvailable): trying Standard_D4as_v5",),
        ),
        Case(
            ("copy-fails",),
            ("was not replicated: westus3: Replication failed in this region", "hint: run the same command again"),
        ),
        Case(("region-not-enabled",), ("westus3",)),
        Case(
            ("resource-fails",),
            (
                "service:W32Time: The specified service has been marked for deletion. (1072)",
                "  the logs of the machine: ",
            ),
        ),
        Case(
            ("engine-killed",),
            ("error: Packer failed: Script exited with non-zero exit status: 1.", "  the logs of the machine: "),
        ),
        Case(("wrong-bytes",), ("kube-log-runner.exe: sha256 is ", ", the plan says ")),
        Case(
            ("wrong-report",),
            (
                "error: no image was made: the report is of another build: plan_sha256 is 000",
                "  the logs of the machine",
            ),
        ),
        Case(("quota",), ("trying Standard_D4as_v5", "error: Packer failed: ", "QuotaExceeded")),
        Case(
            ("html-page",),
            ("management.azure.com answered 403 Forbidden with text/html instead of JSON", "HTTPS_PROXY"),
        ),
    ),
}
# It takes an interrupt to see what it is for.
_SLOW = "slow-clean-up"


def _rehearse(case: Case, target: str, folder: Path) -> Completed:
    folder.mkdir()
    words = [word for name in case.faults for word in ("--fault", name)]
    words += [word for value in case.sets for word in ("--set", value)]
    argv = imagegen("build", CONFIG, "--target", target, "--rehearse", "--out", folder / "out", "--plain", *words)
    return process.run(argv, environ=user_environ(folder), cwd=folder, timeout=_DEADLINE_S)


def _wrong(case: Case, done: Completed) -> str:
    """What is not as it should be."""
    codes = {FAULTS[name].exit_code for name in case.faults}
    missing = [words for words in case.words if words not in done.stderr]
    lines = [f"fault {name}: triggered " for name in case.faults]
    missing += [line for line in lines if line not in done.stderr]
    raw = [words for words in ("Traceback", "was not triggered", "the rehearsal failed") if words in done.stderr]
    if {done.returncode} == codes and not missing and not raw:
        return ""
    return f"{case.faults} ended with {done.returncode}; missing {missing}, raw {raw}\n{done.stderr[-4000:]}"


@pytest.mark.parametrize("target", TARGETS)
def test_every_fault_ends_as_the_list_says(target: str, tmp_path: Path) -> None:
    tested = {name for case in CASES[target] for name in case.faults}
    assert tested == {name for name, fault in FAULTS.items() if target in fault.clouds} - {_SLOW}
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        futures = [
            (case, pool.submit(_rehearse, case, target, tmp_path / str(number)))
            for number, case in enumerate(CASES[target])
        ]
    wrong = [_wrong(case, future.result()) for case, future in futures]
    assert [text for text in wrong if text] == []


def test_a_fault_that_is_not_triggered_fails_the_rehearsal(tmp_path: Path) -> None:
    argv = imagegen("build", CONFIG, "--target", "azure", "--rehearse", "--out", tmp_path / "out", "--plain")
    argv += ["--no-publish", "--fault", "copy-fails"]
    done = process.run(argv, environ=user_environ(tmp_path), cwd=tmp_path, timeout=_DEADLINE_S)
    assert (done.returncode, done.stdout) == (ExitCode.BUILD, "")
    assert "fault copy-fails: triggered 0 times" in done.stderr
    said = "\n".join(line[len("00:00:00Z ") :] for line in done.stderr.splitlines())
    assert "error: the rehearsal failed\n  the fault copy-fails was not triggered: the build did not reach it" in said


_CLEANED_UP = {
    "aws": ("Terminating the source AWS instance...", "Deleting temporary keypair..."),
    "azure": ("Cleanup requested, deleting resource group ...", "Resource group has been deleted."),
}


@pytest.mark.parametrize("target", TARGETS)
def test_an_interrupt_waits_for_a_slow_clean_up(target: str, tmp_path: Path) -> None:
    environ = user_environ(tmp_path)
    argv = imagegen("build", CONFIG, "--target", target, "--rehearse", "--out", tmp_path / "out", "--plain")
    heard: list[str] = []
    with subprocess.Popen(  # noqa: S603 - the checkout's own command line
        [*argv, "--fault", _SLOW], env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stderr is not None
        guard = threading.Timer(_DEADLINE_S, _kill_all, [environ["TMPDIR"]])
        guard.start()
        try:
            for line in child.stderr:
                heard.append(line.rstrip())
                if "WinRM connected" in line:
                    os.kill(child.pid, signal.SIGINT)
        finally:
            guard.cancel()
    said = "\n".join(heard)
    begun, ended = (next(place for place, line in enumerate(heard) if words in line) for words in _CLEANED_UP[target])
    assert begun < ended, said
    # Over midnight too.
    assert (_seconds(heard[ended]) - _seconds(heard[begun])) % 86_400 >= 5, said
    assert (child.returncode, heard[-1][len("00:00:00Z ") :]) == (ExitCode.INTERRUPTED, "interrupted")
    assert f"fault {_SLOW}: triggered " in said


def _seconds(line: str) -> int:
    hours, minutes, seconds = line[:8].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds)


def _kill_all(marked: str) -> None:
    for pid in processes_with(marked):
        os.kill(pid, signal.SIGKILL)
