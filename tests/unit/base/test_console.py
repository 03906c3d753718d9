from __future__ import annotations

import io
import sys
import threading

import pytest
import rich.progress

from imagegen.base.console import Console, make_console, seconds
from imagegen.base.lines import counted
from tests.deadlines import HANG_S


def _at_noon() -> float:
    return 12 * 3600.0


def test_plain_lines_are_whole_never_markup_and_say_when() -> None:
    output = io.StringIO()
    console = Console(output, plain=True, now=_at_noon)
    console.say("[bold]C:\\x[/bold] :smile: " + "y" * 200)
    console.warn("careful")
    said = f"12:00:00Z [bold]C:\\x[/bold] :smile: {'y' * 200}\n12:00:00Z warning: careful\n"
    assert output.getvalue() == said


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("quiet", [True, False])
def test_a_childs_line_is_passed_on_as_it_is(plain: bool, quiet: bool) -> None:
    output = io.StringIO()
    Console(output, plain=plain, quiet=quiet, now=_at_noon).relay("10:00:00Z error: [red]x[/red]")
    assert output.getvalue() == "10:00:00Z error: [red]x[/red]\n"


def test_a_number_agrees_with_its_noun() -> None:
    assert [counted(number, "base image") for number in (0, 1, 2)] == ["0 base images", "1 base image", "2 base images"]


def test_drawn_lines_are_whole_and_never_markup() -> None:
    output = io.StringIO()
    Console(output, plain=False, width=40).say("[bold]x[/bold] :smile: " + "y" * 200)
    assert output.getvalue() == f"[bold]x[/bold] :smile: {'y' * 200}\n"


@pytest.mark.parametrize("plain", [True, False])
def test_quiet_keeps_warnings(plain: bool) -> None:
    output = io.StringIO()
    console = Console(output, plain=plain, quiet=True, now=_at_noon)
    console.say("nothing")
    console.warn("careful")
    with console.task("work", 3) as advance:
        advance(3)
    assert output.getvalue() == f"{'12:00:00Z ' if plain else ''}warning: careful\n"


def test_a_plain_task_says_when_it_begins_and_ends() -> None:
    output = io.StringIO()
    with Console(output, plain=True, now=_at_noon).task("downloading", 10) as advance:
        assert output.getvalue() == "12:00:00Z downloading ...\n"
        advance(10)
    assert output.getvalue() == "12:00:00Z downloading ...\n12:00:00Z downloading: done in 0.0s\n"


def test_a_plain_task_that_fails_does_not_say_done() -> None:
    output = io.StringIO()
    with pytest.raises(ValueError, match="no"), Console(output, plain=True, now=_at_noon).task("downloading", None):
        raise ValueError("no")
    assert output.getvalue() == "12:00:00Z downloading ...\n"


def test_drawn_tasks_of_several_threads_share_one_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(io.StringIO(), plain=False, width=80)
    made: list[rich.progress.Progress] = []
    start = rich.progress.Progress.start

    def remembered(progress: rich.progress.Progress) -> None:
        made.append(progress)
        start(progress)

    monkeypatch.setattr(rich.progress.Progress, "start", remembered)
    inside = threading.Barrier(3, timeout=HANG_S)

    def work() -> None:
        with console.task("[red]a label[/red]", 10) as advance:
            inside.wait()
            advance(10)
            inside.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert [task.description for task in made[0].tasks] == ["[red]a label[/red]"] * 2
    inside.wait()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert made[0].finished
    with console.task("another", None) as advance:
        advance(1)
    assert len(made) == 2


def test_standard_error_decides_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    assert [make_console(plain=plain).plain for plain in (None, True, False)] == [False, True, False]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert make_console().plain is True


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.04, "0.0s"), (1.25, "1.2s"), (9.99, "10s"), (42, "42s"), (59.6, "1m00s"), (187, "3m07s"), (3720, "1h02m")],
)
def test_durations_are_short(value: float, text: str) -> None:
    assert seconds(value) == text
