"""The logs of a node's services are kept small: a task rotates those that nothing else rotates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base import contents
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.rehearsal.machine.programs import log_file
from imagegen.rehearsal.machine.rotation import rotate_logs
from imagegen.rehearsal.machine.tasks import NO_PROGRAM, NO_SCRIPT, SERVICE
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.machine import Machine
    from tests.rehearsal.machine.conftest import Bench, Fields

STEPS = load_steps(contents.SHIPPED.step_roots)
TASK = "imagegen-rotate-logs"
SCRIPT, LIST = r"C:\k\rotate-logs.ps1", r"C:\k\rotated-logs.txt"
CONTAINERD, KUBELET = r"C:\var\log\containerd\containerd.log", r"C:\var\log\kubelet\kubelet.log"
CSI_PROXY = r"C:\var\log\csi-proxy\csi-proxy.log"
# So that a test need not write 100 MiB.
PLANNED_SIZE, SIZE, KEPT = "104857600", 100, 5
EVERY_S = 600


def node(bench: Bench, kubernetes: str, *, without: Sequence[str] = (), **options: Fields) -> dict[str, str]:
    """A node with the folders, the scripts and the task of the shipped steps, restarted. The logs by service."""
    asked = {
        "name": "node",
        "windows": {"release": "2022"},
        "kubernetes": {"version": kubernetes},
        "runtime": {"containerd": {"version": "2.3.4"}},
        "targets": {"aws": {"region": "us-east-1"}},
        **options,
    }
    steps = evaluate_steps(settle(ImageConfig.model_validate(asked), Document("c.yaml", {}, {}), "aws"), STEPS)
    drafts = [draft for step in steps for draft in step.drafts if step.step.name != "cloudbase-init"]
    texts = {name: data for step in steps for name, data in step.texts.items()}
    made: list[tuple[str, Fields]] = []
    for draft in drafts:
        fields: dict[str, Any] = dict(draft.fields)
        is_wanted = draft.kind in ("directory", "acl") or fields.get("name") == TASK
        if is_wanted and draft.kind not in without:
            made.append((draft.kind, fields))
        elif fields.get("path") in (SCRIPT, LIST):
            data = texts[fields["source"]]
            if fields["path"] == LIST:
                assert data.decode().count(PLANNED_SIZE) == len(data.splitlines()) > 0
                data = data.replace(PLANNED_SIZE.encode(), str(SIZE).encode())
            made.append(("file", bench.file(fields["path"], data)))
    bench.bundle({"phase-1": made})
    bench.done("phase-1")
    bench.machine.restart()
    # Windows finds the end of a path without quotes by looking for the program.
    for program in ("kube-log-runner", "csi-proxy"):
        bench.machine.files.write(rf"C:\k\{program}.exe", b"MZ")
    services = {draft.fields["name"]: draft.fields.get("command") for draft in drafts if draft.kind == "service"}
    logs = {name: log_file(bench.machine.files, command) for name, command in services.items() if command}
    return {name: log for name, log in logs.items() if log}


def write_on(machine: Machine, log: str, text: bytes) -> None:
    """What the program of a log does, which keeps it open: it appends."""
    machine.files.write(log, (machine.files.read(log) if machine.files.is_file(log) else b"") + text)


def pass_time(machine: Machine, seconds: float) -> None:
    machine.wait_until(lambda: False, seconds)


@pytest.mark.parametrize("kubernetes", ["1.22.17", "1.33.13", "1.34.0"])
def test_every_log_that_nothing_else_rotates_stays_small(bench: Bench, kubernetes: str) -> None:
    """kube-log-runner could rotate kubelet's log itself from 1.34 on, but only while nobody reads it."""
    machine = bench.machine
    assert node(bench, kubernetes) == {"containerd": CONTAINERD, "kubelet": KUBELET}
    for turn in range(KEPT + 2):
        for log in (CONTAINERD, KUBELET):
            write_on(machine, log, b"%d" % turn * (SIZE + 1))
        pass_time(machine, EVERY_S)
    for log in (CONTAINERD, KUBELET):
        write_on(machine, log, b"after")
        copies = [f"{log}.{number}" for number in range(1, KEPT + 2) if machine.files.is_file(f"{log}.{number}")]
        assert machine.files.read(log).endswith(b"after")
        assert machine.files.read(log) == b"after"
        assert [machine.files.read(copy)[:1] for copy in copies] == [b"6", b"5", b"4", b"3", b"2"]
    assert machine.tasks.results == {TASK: 0}


def test_the_log_of_csi_proxy_stays_small(bench: Bench) -> None:
    """csi-proxy empties its log itself only after 1800 MB, or never."""
    assert node(bench, "1.36.4", csi_proxy={}) == {"containerd": CONTAINERD, "kubelet": KUBELET, "csi-proxy": CSI_PROXY}
    write_on(bench.machine, CSI_PROXY, b"x" * (SIZE + 1))
    pass_time(bench.machine, EVERY_S)
    assert bench.machine.files.read(CSI_PROXY) == b""
    assert len(bench.machine.files.read(f"{CSI_PROXY}.1")) == SIZE + 1


@pytest.mark.parametrize(("without", "size"), [((), 0), (("task",), 3 * (SIZE + 1))])
def test_without_the_task_a_log_grows_for_ever(bench: Bench, without: Sequence[str], size: int) -> None:
    node(bench, "1.33.13", without=without)
    for _ in range(3):
        write_on(bench.machine, CONTAINERD, b"x" * (SIZE + 1))
        pass_time(bench.machine, EVERY_S)
    assert len(bench.machine.files.read(CONTAINERD)) == size


def test_the_task_runs_again_after_every_start(bench: Bench) -> None:
    """It needs no start of Windows either: it runs on the builder too, where no log is large."""
    machine = bench.machine
    node(bench, "1.33.13")
    for _ in range(2):
        write_on(machine, CONTAINERD, b"x" * (SIZE + 1))
        pass_time(machine, EVERY_S - 1)
        assert not machine.files.is_file(CONTAINERD + ".1"), "too early"
        pass_time(machine, 1)
        machine.files.remove(CONTAINERD + ".1")
        machine.restart()


def test_a_task_runs_once_in_its_time_however_often_it_is_registered(bench: Bench) -> None:
    machine, runs = bench.machine, []
    node(bench, "1.33.13")
    task = machine.tasks.task(TASK)
    assert task
    machine.tasks.register(machine, task)
    for _ in range(3):
        machine.tasks.results.clear()
        pass_time(machine, EVERY_S)
        runs.append(dict(machine.tasks.results))
    assert runs == [{TASK: 0}] * 3
    machine.tasks.unregister(TASK)
    machine.tasks.results.clear()
    pass_time(machine, 2 * EVERY_S)
    assert machine.tasks.results == {}


@pytest.mark.parametrize(
    ("lost", "result"),
    [
        (r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe", NO_PROGRAM),
        (SCRIPT, NO_SCRIPT),
        (LIST, 1),
    ],
)
def test_a_task_that_cannot_run_says_so(bench: Bench, lost: str, result: int) -> None:
    node(bench, "1.33.13")
    bench.machine.files.remove(lost)
    pass_time(bench.machine, EVERY_S)
    assert bench.machine.tasks.results == {TASK: result}


def test_no_task_runs_without_the_task_scheduler(bench: Bench) -> None:
    node(bench, "1.33.13")
    bench.machine.tasks.results.clear()
    bench.machine.services.stop(SERVICE)
    pass_time(bench.machine, EVERY_S)
    assert bench.machine.tasks.results == {}


LOG, FAILED = r"C:\logs\x.log", r"C:\list.txt.failed"
ROTATIONS: list[tuple[str, dict[str, bytes], int, dict[str, bytes]]] = [
    ("4 3", {"": b"1234"}, 0, {"": b"1234"}),
    ("4 3", {"": b"12345"}, 0, {"": b"", ".1": b"12345"}),
    ("4 3", {"": b"123456789"}, 0, {"": b"", ".1": b"23456789"}),
    ("4 3", {"": b"12345", ".1": b"a", ".2": b"b"}, 0, {"": b"", ".1": b"12345", ".2": b"a", ".3": b"b"}),
    ("4 3", {"": b"12345", ".2": b"b"}, 0, {"": b"", ".1": b"12345", ".2": b"b"}),
    ("4 2", {"": b"12345", ".1": b"a", ".2": b"b"}, 0, {"": b"", ".1": b"12345", ".2": b"a"}),
    ("4 1", {"": b"12345", ".1": b"a"}, 0, {"": b"", ".1": b"12345"}),
    ("4 3", {}, 0, {}),
    ("4 3", {"": b"12345", ".new": b"of a run that was ended"}, 0, {"": b"", ".1": b"12345"}),
    ("four 3", {"": b"12345"}, 1, {"": b"12345"}),
    ("4", {"": b"12345"}, 1, {"": b"12345"}),
    ("-4 3", {"": b"12345"}, 1, {"": b"12345"}),
    ("4 0", {"": b"12345"}, 1, {"": b"12345"}),
]


@pytest.mark.parametrize(("numbers", "before", "code", "after"), ROTATIONS)
def test_rotation(bench: Bench, numbers: str, before: dict[str, bytes], code: int, after: dict[str, bytes]) -> None:
    """Each line by itself: one that is wrong does not keep the next log from being rotated."""
    files = bench.machine.files
    for folder in (r"C:\logs", r"C:\other"):
        files.make_folder(folder)
    for ending, data in before.items():
        files.write(LOG + ending, data)
    files.write(r"C:\other\y.log", b"too large")
    files.write(r"C:\list.txt", f"{numbers} {LOG}\n\n4 1 C:\\other\\y.log\n".encode())
    files.write(FAILED, b"of the run before")
    assert rotate_logs(bench.machine, ["-List", r"C:\list.txt"]) == code
    assert files.is_file(FAILED) is bool(code)
    assert not code or files.read(FAILED).startswith(f"{numbers} {LOG}: ".encode())
    assert {name.removeprefix("x.log"): files.read(rf"C:\logs\{name}") for name in files.names(r"C:\logs")} == after
    assert files.names(r"C:\other") == ["y.log", "y.log.1"]


def test_a_log_that_cannot_be_emptied_keeps_its_copies(bench: Bench) -> None:
    """Whoever holds it, however often the task runs: no copy makes way for another of the same lines."""
    files = bench.machine.files
    files.make_folder(r"C:\logs")
    for ending, data in (("", b"12345"), (".1", b"a"), (".2", b"b")):
        files.write(LOG + ending, data)
    files.set_read_only(LOG, on=True)
    files.write(r"C:\list.txt", f"4 3 {LOG}".encode())
    for _ in range(3):
        assert rotate_logs(bench.machine, ["-List", r"C:\list.txt"]) == 1
    assert b"read-only" in files.read(FAILED)
    assert {name: files.read(rf"C:\logs\{name}") for name in files.names(r"C:\logs")} == {
        "x.log": b"12345",
        "x.log.2": b"a",
        "x.log.3": b"b",
    }


def test_a_line_without_a_path_is_a_failure(bench: Bench) -> None:
    bench.machine.files.write(r"C:\list.txt", b"4 3 \n")
    assert rotate_logs(bench.machine, ["-List", r"C:\list.txt"]) == 1


@pytest.mark.parametrize("arguments", [[], ["-List"], ["-Lists", r"C:\list.txt"], ["-List", r"C:\none.txt"]])
def test_wrong_arguments_are_a_failure(bench: Bench, arguments: list[str]) -> None:
    bench.machine.files.write(r"C:\list.txt", b"")
    assert rotate_logs(bench.machine, arguments) == 1
