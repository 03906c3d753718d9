"""Children behind their supervisors: what they see, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from imagegen.base import signals
from imagegen.base.errors import ToolError
from imagegen.build import process
from imagegen.build.process import Supervision
from imagegen.build.supervisor import Grace, Orphan
from tests.conftest import REPOSITORY
from tests.deadlines import HANG_S
from tests.e2e.process_support import assert_gone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.e2e

# Far from the 30 seconds that the programs have, and from the minute that some of them sleep; a slow machine takes its
# time for three starts of Python.
_AT_ONCE_S = 15.0


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_child_sees_only_the_environment_it_is_given() -> None:
    done = process.run(["/usr/bin/env"], environ={"ONE": "ä", "B\udcff": "\udcfe"}, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (0, "ONE=ä\nB\ufffd=\ufffd\n")


def test_a_child_without_input_reads_an_end_and_not_the_terminal() -> None:
    done = process.run(python("import sys; print(repr(sys.stdin.read())); sys.exit(3)"), environ={}, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (3, "''\n")


def test_a_program_that_is_not_there_is_a_missing_tool() -> None:
    with pytest.raises(ToolError, match="no-such-program cannot be started: No such file"):
        process.run(["/no-such-program"], environ={"PATH": "/nowhere"}, timeout=5)


def test_an_overdue_child_is_killed_with_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "time.sleep(60)"
    )
    with pytest.raises(TimeoutError, match="did not end within 3 s"):
        process.run(python(code), environ={}, timeout=3)
    assert_gone(int(note.read_text()))


def test_lines_come_as_they_are_said_and_leftovers_are_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "print('eins\\r'); print('zw\\u00f6lf', file=sys.stderr); print('no end', end='')"
    )
    lines: list[str] = []
    began = time.monotonic()
    environ = {"PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}
    code_out = process.stream(python(code), environ=environ, cwd=None, timeout=HANG_S, on_line=lines.append)
    assert (code_out, lines) == (0, ["eins", "zwölf", "no end"])
    assert time.monotonic() - began < _AT_ONCE_S
    assert_gone(int(note.read_text()))


def test_output_that_a_daemon_holds_open_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "print('done')"
    )
    monkeypatch.setattr(process, "_DRAIN_S", 0.2)
    lines: list[str] = []
    began = time.monotonic()
    code_out = process.stream(python(code), environ={}, cwd=None, timeout=HANG_S, on_line=lines.append)
    # Not of the program's group: whoever starts a daemon wants it to stay.
    os.kill(int(note.read_text()), signal.SIGKILL)
    assert (code_out, lines) == (0, ["done"])
    assert time.monotonic() - began < _AT_ONCE_S


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """Whoever starts the tests with nohup wants them to outlive the terminal: a lost one is ignored then."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("as_in_a_terminal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_reaches_the_child_once_and_its_clean_up_is_heard(number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\n"
        "def clean(*_):\n"
        "    print('cleaning'); print('clean'); sys.exit(0)\n"
        "signal.signal(signal.SIGINT, clean)\n"
        "print('ready')\n"
        "time.sleep(60)"
    )
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line == "ready":
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        process.stream(python(code), environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=HANG_S, on_line=on_line)
    assert lines == ["ready", "cleaning", "clean"]


def test_a_child_that_ignores_the_interrupt_is_killed_after_its_grace() -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready'); time.sleep(60)"
    environ = {"PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        process.stream(
            python(code),
            environ=environ,
            cwd=None,
            timeout=2,
            on_line=lambda _: None,
            supervision=Supervision(grace=Grace(least_s=0.2)),
        )
    assert time.monotonic() - began < _AT_ONCE_S


def test_a_clean_up_that_still_says_something_outlasts_its_grace() -> None:
    code = (
        "import signal, sys, time\n"
        "def clean(*_):\n"
        "    for number in range(12): print(number); time.sleep(0.25)\n"
        "    print('clean'); sys.exit(0)\n"
        "signal.signal(signal.SIGINT, clean)\n"
        "print('ready')\n"
        "time.sleep(60)"
    )
    lines: list[str] = []
    with pytest.raises(TimeoutError):
        process.stream(
            python(code),
            environ={"PYTHONUNBUFFERED": "1"},
            cwd=None,
            timeout=2,
            on_line=lines.append,
            # The three seconds of it are longer than either.
            supervision=Supervision(grace=Grace(least_s=0.1, quiet_s=2.0)),
        )
    assert lines == ["ready", *map(str, range(12)), "clean"]


def test_a_second_interrupt_does_not_wait_for_the_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "DUPLICATE_WITHIN_S", 0.0)
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print('still cleaning'))\n"
        "print('ready')\n"
        "while True: time.sleep(60)"
    )
    began = time.monotonic()

    def on_line(_line: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        process.stream(python(code), environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=HANG_S, on_line=on_line)
    assert time.monotonic() - began < _AT_ONCE_S


def test_a_listener_that_fails_is_asked_no_more_while_the_child_cleans_up(tmp_path: Path) -> None:
    note = tmp_path / "clean"
    code = (
        "import signal, sys, time\n"
        "def clean(*_):\n"
        f"    print('cleaning'); open({str(note)!r}, 'w').close(); sys.exit(0)\n"
        "signal.signal(signal.SIGINT, clean)\n"
        "print('ready')\n"
        "time.sleep(60)"
    )
    heard: list[str] = []

    def on_line(line: str) -> None:
        heard.append(line)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        process.stream(python(code), environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=HANG_S, on_line=on_line)
    assert heard == ["ready"]
    assert note.exists()


def test_standard_error_can_be_heard_apart() -> None:
    out: list[str] = []
    err: list[str] = []
    argv = ["/bin/sh", "-c", "echo out; echo err >&2; echo more"]
    code = process.stream(
        argv, environ={}, cwd=None, timeout=HANG_S, on_line=out.append, supervision=Supervision(err.append)
    )
    assert (code, out, err) == (0, ["out", "more"], ["err"])


def test_a_program_that_runs_others_is_asked_twice_before_it_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "asked = []\n"
        "def ask(*_):\n"
        "    asked.append(1)\n"
        "    if len(asked) == 2:\n"
        f"        open({str(tmp_path / 'note')!r}, 'w').write('asked twice'); sys.exit()\n"
        "signal.signal(signal.SIGINT, ask)\n"
        "print('ready')\n"
        "while True: time.sleep(60)"
    )
    note = tmp_path / "note"

    def stop(_line: str) -> None:
        raise OSError("enough")

    with pytest.raises(OSError, match="enough"):
        process.stream(
            python(code),
            environ={"PYTHONUNBUFFERED": "1"},
            cwd=None,
            timeout=HANG_S,
            on_line=stop,
            supervision=Supervision(grace=Grace(least_s=0.2), orphan=Orphan(Grace(last_s=_AT_ONCE_S))),
        )
    assert note.read_text() == "asked twice"


def test_a_program_does_not_outlive_a_supervisor_that_was_killed() -> None:
    code = "import os, signal, time; print(os.getpid()); os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)"
    lines: list[str] = []
    environ = {"PYTHONUNBUFFERED": "1"}
    ended = process.stream(python(code), environ=environ, cwd=None, timeout=HANG_S, on_line=lines.append)
    assert ended == -signal.SIGKILL
    assert_gone(int(lines[0]))


# A run of imagegen for itself, which can be killed: it hears one program, and says what it hears.
_DRIVER = """\
import pathlib, sys
from imagegen.build import process
from imagegen.build.supervisor import Grace, Orphan

log, least_s, program = pathlib.Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
orphan = Orphan(Grace(least_s=least_s), str(log), ("hunter2hunter2",))
say = lambda line: print(line, flush=True)
try:
    process.stream(
        [sys.executable, "-c", program], environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=1800, on_line=say,
        supervision=process.Supervision(orphan=orphan),
    )
except KeyboardInterrupt:
    say("interrupted")
"""
# It says more than a pipe holds while it cleans up: nobody reading would block it, and a closed pipe would end it.
_CLEANS_UP = """\
import os, time
try:
    print(os.getpid(), os.getppid())
    time.sleep(60)
except KeyboardInterrupt:
    for number in range(2000):
        print(f"1,,ui,say,==> x.y: deleting {number:060d}")
    print("1,,ui,say,==> x.y: with hunter2hunter2")
    print("clean", end="")
"""
_IGNORES = """\
import os, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(os.getpid(), os.getppid())
time.sleep(60)
"""


def _driver(log: Path, least_s: float, program: str) -> list[str]:
    return [sys.executable, "-c", _DRIVER, str(log), str(least_s), program]


def _kill_when_it_runs(argv: list[str]) -> list[int]:
    """The program and its supervisor, when imagegen was killed and they have ended."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as driver:  # noqa: S603 - this test's own
        assert driver.stdout is not None
        family = [int(pid) for pid in driver.stdout.readline().split()]
        driver.kill()
    assert len(family) == 2
    return family


def test_a_program_cleans_up_when_imagegen_is_killed_and_the_log_tells(tmp_path: Path) -> None:
    log = tmp_path / "packer.log"
    log.write_text("what imagegen had heard\n")
    for pid in _kill_when_it_runs(_driver(log, 30, _CLEANS_UP)):
        assert_gone(pid)
    first, *texts = [line.partition(" ")[2] for line in log.read_text().splitlines()]
    assert first == "imagegen had heard"
    assert texts[:2] == [f"x.y: deleting {number:060d}" for number in range(2)]
    assert texts[-3:] == [f"x.y: deleting {1999:060d}", "x.y: with ***", "clean"]
    assert len(texts) == 2002


def test_a_program_that_does_not_end_is_killed_after_its_grace_when_imagegen_was(tmp_path: Path) -> None:
    for pid in _kill_when_it_runs(_driver(tmp_path / "log", 0.1, _IGNORES)):
        assert_gone(pid)


def test_sigterm_works_where_ctrl_c_was_inherited_as_ignored(tmp_path: Path) -> None:
    argv = shlex.join(_driver(tmp_path / "log", 30, _CLEANS_UP))
    script = ["/bin/sh", "-c", f"{argv} & echo $!; wait"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as shell:  # noqa: S603 - this test's own
        assert shell.stdout is not None
        lines = sorted([shell.stdout.readline().split(), shell.stdout.readline().split()], key=len)
        pids = [int(pid) for line in lines for pid in line]
        # The shell says one process, imagegen; the program says two, itself and its supervisor.
        imagegen = pids[0]
        os.kill(imagegen, signal.SIGINT)
        os.kill(imagegen, signal.SIGTERM)
        said = shell.stdout.read().splitlines()
    assert said[-2:] == ["clean", "interrupted"]
    for pid in pids:
        assert_gone(pid)


def test_these_tests_pass_where_ctrl_c_was_inherited_as_ignored() -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        __file__,
        "-k",
        "interrupt and not ignored",
    ]
    done = process.run(["/bin/sh", "-c", f"{shlex.join(words)} & wait $!"], environ=os.environ, timeout=HANG_S)
    assert done.returncode == 0, done.stdout
