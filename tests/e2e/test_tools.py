"""The build room against real programs: children, the toolchain of this machine, trees for Packer's null builder."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.build import process
from imagegen.build.events import PhaseEvent, ResourceEvent
from imagegen.build.packer import build_tree, validate_tree
from imagegen.build.tools import find_tools
from imagegen.console import Console
from imagegen.errors import BuildError, RefusedError, ToolError

if TYPE_CHECKING:
    from imagegen.build.events import GuestEvent
    from imagegen.build.packer_output import Said
    from imagegen.build.toolchain import Toolchain

pytestmark = pytest.mark.e2e

_STARTED = (
    'imagegen: {"event":"phase","phase":"base","status":"started","resources":1,'
    '"changed":0,"restart":false,"ms":0,"reason":""}'
)
_CHANGED = (
    'imagegen: {"event":"resource","phase":"base","id":"system/registry:C:\\\\new,old","status":"changed",'
    '"ms":1200,"reason":"it was \\"a, b\\""}'
)
_FAILED = (
    'imagegen: {"event":"resource","phase":"base","id":"containerd/service:containerd","status":"failed",'
    '"ms":5,"reason":"did not come up"}'
)

_TREE = """\
variable "speech" {
  type    = string
  default = "none"
}

source "null" "x" {
  communicator = "none"
}

build {
  sources = ["source.null.x"]

  provisioner "shell-local" {
    inline = [
      %s
    ]
  }
}
"""


class Recorder:
    """A display that keeps what it is told, and can answer a phase with a Ctrl-C."""

    def __init__(self, *, interrupt: bool = False) -> None:
        self.events: list[GuestEvent] = []
        self.spoken: list[str] = []
        self.warnings: list[str] = []
        self.interrupt = interrupt

    def event(self, event: GuestEvent) -> None:
        self.events.append(event)
        if self.interrupt and isinstance(event, PhaseEvent):
            os.kill(os.getpid(), signal.SIGINT)

    def said(self, said: Said) -> None:
        self.spoken.append(said.text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture(scope="module")
def tools(environ: dict[str, str]) -> Toolchain:
    return find_tools(environ=environ, console=Console(sys.stderr, plain=True))


def tree_of(folder: Path, *commands: str) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    quoted = [command.replace("\\", "\\\\").replace('"', '\\"') for command in commands]
    text = _TREE % "\n      ".join(f'"{command}",' for command in quoted)
    (tree / "build.pkr.hcl").write_text(text, encoding="utf-8")
    return tree


def echo(line: str) -> str:
    return f"printf '%s\\n' '{line}'"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_child_sees_only_the_environment_it_is_given() -> None:
    code = "import os; print(sorted(set(os.environ) - {'LC_CTYPE'})); print(input())"
    done = process.run(python(code), environ={"ONE": "1"}, timeout=30, input="told\n")
    assert (done.returncode, done.stdout) == (0, "['ONE']\ntold\n")


def test_a_child_without_input_reads_an_end_and_not_the_terminal() -> None:
    done = process.run(python("import sys; print(repr(sys.stdin.read())); sys.exit(3)"), environ={}, timeout=30)
    assert (done.returncode, done.stdout) == (3, "''\n")


def test_a_program_that_is_not_there_is_a_missing_tool() -> None:
    with pytest.raises(ToolError, match="no-such-program cannot be started"):
        process.run(["no-such-program"], environ={"PATH": "/nowhere"}, timeout=5)


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
    code_out = process.stream(python(code), environ=environ, cwd=None, timeout=30, on_line=lines.append)
    assert (code_out, lines) == (0, ["eins", "zwölf", "no end"])
    assert time.monotonic() - began < 20
    assert_gone(int(note.read_text()))


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
        process.stream(python(code), environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=30, on_line=on_line)
    assert lines == ["ready", "cleaning", "clean"]


def test_a_child_that_ignores_the_interrupt_is_killed_after_its_grace() -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('ready'); time.sleep(60)"
    environ = {"PYTHONUNBUFFERED": "1"}
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        process.stream(python(code), environ=environ, cwd=None, timeout=2, on_line=lambda _: None, grace_s=0.2)
    assert time.monotonic() - began < 20


def test_a_second_interrupt_does_not_wait_for_the_clean_up() -> None:
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
        process.stream(python(code), environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=30, on_line=on_line)
    assert time.monotonic() - began < 20


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
        process.stream(python(code), environ={"PYTHONUNBUFFERED": "1"}, cwd=None, timeout=30, on_line=on_line)
    assert heard == ["ready"]
    assert note.exists()


def assert_gone(pid: int) -> None:
    """A killed process is gone when whoever inherited it has reaped it."""
    deadline = time.monotonic() + 10
    pause = threading.Event()
    while is_running(pid) and not _is_zombie(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        pause.wait(0.05)


def _is_zombie(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_tools_are_found_at_once_the_second_time(tools: Toolchain, environ: dict[str, str]) -> None:
    began = time.monotonic()
    again = find_tools(environ=environ, console=Console(sys.stderr, plain=True))
    assert time.monotonic() - began < 1
    assert again == tools
    assert set(again.plugins) >= {"amazon", "azure"}


def test_a_build_answers_with_its_artifact(tools: Toolchain, environ: dict[str, str], tmp_path: Path) -> None:
    signed = "https://me:secret@h.example/x?sig=c2VjcmV0&y=1"
    tree = tree_of(tmp_path, echo(_STARTED), echo(_CHANGED), echo(signed), "echo ${var.speech}")
    validate_tree(tools, tree, environ=environ)
    log, display = tmp_path / "out" / "packer.log", Recorder()
    built = build_tree(
        tools,
        tree,
        environ={**environ, "PKR_VAR_speech": "the user's"},
        variables={"speech": "from the caller"},
        log=log,
        display=display,
        timeout_s=120,
    )
    assert (built.artifact_id, built.builder, built.target) == ("Null", "fnoeding.null", "null.x")
    assert display.events == [
        PhaseEvent("base", "started", 1, 0, False, 0, ""),
        ResourceEvent("base", "system/registry:C:\\new,old", "changed", 1200, 'it was "a, b"'),
    ]
    assert "from the caller" in display.spoken
    assert "https://***@h.example/x?sig=***&y=1" in display.spoken
    assert "secret" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_failed_build_names_resource_step_reason_and_log(
    tools: Toolchain, environ: dict[str, str], tmp_path: Path
) -> None:
    tree = tree_of(tmp_path, echo(_STARTED), echo(_FAILED), "echo some prose", "exit 6")
    log = tmp_path / "packer.log"
    with pytest.raises(BuildError) as caught:
        build_tree(tools, tree, environ=environ, variables={}, log=log, display=Recorder(), timeout_s=120)
    assert caught.value.message == "containerd/service:containerd failed in phase base: did not come up"
    assert "step containerd: ansible-win/roles/containerd/resources.yml" in caught.value.details
    assert "  some prose" in caught.value.details
    assert caught.value.details[-1] == f"the full log: {log}"


def test_a_tree_that_packer_cannot_read_fails_with_packers_words(
    tools: Toolchain, environ: dict[str, str], tmp_path: Path
) -> None:
    tree = tree_of(tmp_path, "true")
    file = tree / "build.pkr.hcl"
    file.write_text(file.read_text().replace("sources", "sauces "))
    with pytest.raises(RefusedError) as badly_formatted:
        validate_tree(tools, tree, environ=environ)
    assert badly_formatted.value.message.endswith("is not formatted")
    file.write_text(file.read_text().replace("sauces ", "sauces"))
    with pytest.raises(RefusedError) as invalid:
        validate_tree(tools, tree, environ=environ)
    assert any("sauces" in detail for detail in invalid.value.details)
    with pytest.raises(BuildError, match="Packer failed: Unsupported argument"):
        build_tree(tools, tree, environ=environ, variables={}, log=tmp_path / "log", display=Recorder(), timeout_s=120)


def test_an_interrupted_build_is_cleaned_up_and_leaves_nothing_running(
    tools: Toolchain, environ: dict[str, str], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    tree = tree_of(tmp_path, f"echo $$ > {note}", echo(_STARTED), "sleep 60")
    display = Recorder(interrupt=True)
    log = tmp_path / "packer.log"
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build_tree(tools, tree, environ=environ, variables={}, log=log, display=display, timeout_s=120)
    assert time.monotonic() - began < 50
    assert "Cleanly cancelled builds" in log.read_text()
    assert display.warnings == []
    assert_gone(int(note.read_text()))
