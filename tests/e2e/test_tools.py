"""The build room against real programs: children, the toolchain of this machine, trees for Packer's null builder."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import BuildError, RefusedError
from imagegen.build.events import PhaseEvent, ResourceEvent
from imagegen.build.packer import PackerBuild, build_tree, validate_tree
from imagegen.build.tools import find_tools
from tests.deadlines import HANG_S
from tests.e2e.process_support import assert_gone
from tests.provider_answers import PLUGINS

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.build.events import GuestEvent
    from imagegen.build.output import OutputLine
    from imagegen.build.tools import Toolchain

pytestmark = pytest.mark.e2e

_STARTED = (
    'imagegen: {"event":"phase","phase":"phase-1","status":"started","resources":1,'
    '"changed":0,"restart":false,"ms":0,"reason":""}'
)
_CHANGED = (
    'imagegen: {"event":"resource","phase":"phase-1","id":"system/registry:C:\\\\new,old","status":"changed",'
    '"ms":1200,"reason":"it was \\"a, b\\""}'
)
_FAILED = (
    'imagegen: {"event":"resource","phase":"phase-1","id":"containerd/service:containerd","status":"failed",'
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

    def show_event(self, event: GuestEvent) -> None:
        self.events.append(event)
        if self.interrupt and isinstance(event, PhaseEvent):
            os.kill(os.getpid(), signal.SIGINT)

    def show_output(self, output: OutputLine) -> None:
        self.spoken.append(output.text)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    return dict(os.environ)


@pytest.fixture(scope="module")
def tools(environ: dict[str, str]) -> Toolchain:
    return find_tools(environ=environ, console=Console(sys.stderr, plain=True), needed=PLUGINS.values())


def tree_of(folder: Path, *commands: str) -> Path:
    tree = folder / "tree"
    tree.mkdir()
    quoted = [command.replace("\\", "\\\\").replace('"', '\\"') for command in commands]
    text = _TREE % "\n      ".join(f'"{command}",' for command in quoted)
    (tree / "build.pkr.hcl").write_text(text, encoding="utf-8")
    return tree


def echo(line: str) -> str:
    return f"printf '%s\\n' '{line}'"


def test_the_same_tools_are_found_again(tools: Toolchain, environ: dict[str, str]) -> None:
    again = find_tools(environ=environ, console=Console(sys.stderr, plain=True), needed=PLUGINS.values())
    assert again == tools
    assert set(again.plugins) >= {"amazon", "azure"}


def test_a_build_answers_with_its_artifact(tools: Toolchain, environ: dict[str, str], tmp_path: Path) -> None:
    signed = "https://me:secret@h.example/x?sig=c2VjcmV0&y=1"
    tree = tree_of(tmp_path, echo(_STARTED), echo(_CHANGED), echo(signed), "echo ${var.speech}")
    validate_tree(tools, tree, environ=environ)
    log, display = tmp_path / "out" / "packer.log", Recorder()
    built = build_tree(
        tools,
        PackerBuild(tree, log, HANG_S, {"speech": "from the caller"}),
        environ={**environ, "PKR_VAR_speech": "the user's"},
        display=display,
    )
    assert built == "Null"
    assert display.events == [
        PhaseEvent("phase-1", "started", 1, 0, False, 0, ""),
        ResourceEvent("phase-1", "system/registry:C:\\new,old", "changed", 1200, 'it was "a, b"'),
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
        build_tree(tools, PackerBuild(tree, log, HANG_S), environ=environ, display=Recorder())
    assert caught.value.message == "containerd/service:containerd failed in phase-1: did not come up"
    assert "step containerd: ansible-win/roles/containerd/resources.yml" in caught.value.details
    assert "  some prose" in caught.value.details
    assert caught.value.details[-1] == f"the full log: {log}"


def test_packers_own_log_is_in_the_log(tools: Toolchain, environ: dict[str, str], tmp_path: Path) -> None:
    tree, log, display = tree_of(tmp_path, "echo spoken"), tmp_path / "packer.log", Recorder()
    build_tree(
        tools,
        PackerBuild(tree, log, HANG_S),
        environ={**environ, "PACKER_LOG": "1"},
        display=display,
    )
    assert "[INFO] Packer version: " in log.read_text()
    assert [text for text in display.spoken if "[INFO]" in text] == []
    assert "spoken" in display.spoken


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
        build_tree(tools, PackerBuild(tree, tmp_path / "log", HANG_S), environ=environ, display=Recorder())


def test_an_interrupted_build_is_cleaned_up_and_leaves_nothing_running(
    tools: Toolchain, environ: dict[str, str], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    tree = tree_of(tmp_path, f"echo $$ > {note}", echo(_STARTED), "sleep 60")
    display = Recorder(interrupt=True)
    log = tmp_path / "packer.log"
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build_tree(tools, PackerBuild(tree, log, HANG_S), environ=environ, display=display)
    assert time.monotonic() - began < 50
    assert "Cleanly cancelled builds" in log.read_text()
    assert display.warnings == []
    assert_gone(int(note.read_text()))
