from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.build.display import LineDisplay, LiveDisplay, show_build
from imagegen.build.events import ArtifactEvent, BrokenEvent, GuestEvent, PhaseEvent, ReportEvent, ResourceEvent
from imagegen.build.output import OutputLine

if TYPE_CHECKING:
    from imagegen.build.display import Display

_LONG = "kubernetes/file:" + "C:\\a very long folder name\\" * 5
_STORY: tuple[GuestEvent | OutputLine, ...] = (
    OutputLine("Creating temporary keypair", "amazon-ebs.x"),
    OutputLine("Creating temporary keypair", "amazon-ebs.x"),
    OutputLine("Packer's own, of no build"),
    PhaseEvent("phase-1", "started", 3, 0, False, 0, ""),
    OutputLine("prose of the guest", "amazon-ebs.x"),
    ArtifactEvent("containerd", "fetching", 31_400_000),
    ArtifactEvent("containerd", "ready", 31_400_000),
    ResourceEvent("phase-1", "system/feature:Containers", "changed", 1200, "was Available"),
    ResourceEvent("phase-1", "system/registry:x", "ok", 3, ""),
    PhaseEvent("phase-1", "finished", 3, 1, True, 31200, ""),
    OutputLine("Restarting Machine", "amazon-ebs.x"),
    PhaseEvent("phase-2", "started", 1, 0, False, 0, ""),
    ResourceEvent("phase-2", _LONG, "failed", 90_000, "did not come up"),
    BrokenEvent("{", "not JSON"),
    PhaseEvent("phase-2", "failed", 1, 0, False, 100_000, "as said"),
    ReportEvent("C:\\r", "0123456789abcdef"),
)


def tell(display: Display) -> None:
    for part in _STORY:
        if isinstance(part, OutputLine):
            display.show_output(part)
        else:
            display.show_event(part)


def test_lines_tell_phases_changes_and_packers_steps() -> None:
    output = io.StringIO()
    tell(LineDisplay(Console(output, plain=True, now=lambda: 0.0), "aws"))
    assert [line.removeprefix("00:00:00Z ") for line in output.getvalue().splitlines()] == [
        "aws  packer  Creating temporary keypair",
        "aws  phase-1  3 resources",
        "aws  fetching containerd (31.4 MB)",
        "aws  phase-1  changed system/feature:Containers  1.2s",
        "aws  phase-1  finished: 1 changed, 2 ok, restart needed  31s",
        "aws  packer  Restarting Machine",
        "aws  phase-2  1 resource",
        f"aws  phase-2  failed {_LONG}: did not come up  1m30s",
        "warning: aws  the guest sent an invalid event (not JSON): {",
        "aws  phase-2  failed: as said  1m40s",
        "aws  the machine wrote its report",
    ]


def test_a_quiet_run_shows_warnings_only() -> None:
    output = io.StringIO()
    with show_build(Console(output, plain=False, quiet=True), "aws") as display:
        tell(display)
    assert [line.split()[0] for line in output.getvalue().splitlines()] == ["warning:"]


@pytest.mark.parametrize("width", [40, 80])
def test_the_drawing_never_exceeds_the_width(width: int) -> None:
    output = io.StringIO()
    console = Console(output, plain=False, width=width)
    display = LiveDisplay(console, "aws")
    seen = []
    for part in _STORY:
        if isinstance(part, OutputLine):
            display.show_output(part)
        else:
            display.show_event(part)
        with console.terminal.capture() as drawn:
            console.terminal.print(display.drawing())
        seen.append(drawn.get().splitlines())
    assert max(len(line) for lines in seen for line in lines) <= width
    assert any(line.endswith("…") for lines in seen for line in lines)
    assert [len(lines) for lines in seen] == [1, 1, 1, *[2] * 8, *[3] * 5]


def test_the_drawing_counts_and_names_what_is_done() -> None:
    console = Console(io.StringIO(), plain=False, width=80)
    display = LiveDisplay(console, "aws")
    for part in _STORY[3:9]:
        if isinstance(part, OutputLine):
            display.show_output(part)
        else:
            display.show_event(part)
    with console.terminal.capture() as drawn:
        console.terminal.print(display.drawing())
    phase, current = drawn.get().splitlines()
    assert "aws  phase-1  2/3, 1 changed" in phase
    assert current.endswith("system/registry:x")


def test_the_end_of_a_drawing_leaves_a_line_for_each_phase() -> None:
    output = io.StringIO()

    def fail() -> None:
        with show_build(Console(output, plain=False, width=200), "aws") as display:
            tell(display)
            raise ValueError("the build failed")

    with pytest.raises(ValueError, match="the build failed"):
        fail()
    lines = [line.strip() for line in output.getvalue().splitlines()]
    assert lines[-2:] == [
        "aws  phase-1  finished, 1 changed, restart needed  31s",
        "aws  phase-2  failed, 0 changed, 1 failed  1m40s",
    ]
    assert any("did not come up" in line for line in lines)
