"""What signals mean while a program runs, how long it may clean up, and how its lines are handed on meanwhile."""

from __future__ import annotations

import os
import signal
from signal import SIGHUP, SIGINT, SIGTERM
from typing import TYPE_CHECKING

import pytest

from imagegen.base.signals import StopHandler, stop_signals
from imagegen.build.process import Pump
from imagegen.build.supervisor import Grace

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Time that goes on when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("signals", "raised"),
    [
        ([(SIGINT, 0)], [True]),
        ([(SIGTERM, 0)], [True]),
        ([(SIGHUP, 0)], [True]),
        ([(SIGINT, 0), (SIGINT, 2)], [True, True]),
        ([(SIGINT, 0), (SIGINT, 0.2)], [True, False]),
        ([(SIGINT, 0), (SIGINT, 0.2), (SIGINT, 2)], [True, False, True]),
        ([(SIGINT, 0), (SIGTERM, 9), (SIGHUP, 9), (SIGTERM, 9)], [True, False, False, False]),
        ([(SIGTERM, 0), (SIGINT, 9), (SIGINT, 18)], [True, False, True]),
    ],
)
def test_only_a_person_who_repeats_ctrl_c_does_not_wait(
    signals: list[tuple[signal.Signals, float]], raised: list[bool]
) -> None:
    clock = Clock()
    wish = StopHandler(clock)
    seen = []
    for number, after in signals:
        clock.now = 100.0 + after
        try:
            wish(number)
        except KeyboardInterrupt:
            seen.append(True)
        else:
            seen.append(False)
    assert seen == raised


@pytest.fixture
def usual() -> Iterator[None]:
    """The handlers of this process as they were."""
    numbers = (SIGINT, SIGTERM, SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual")
def test_what_is_ignored_stays_ignored_and_the_rest_stops() -> None:
    signal.signal(SIGINT, signal.SIG_IGN)
    signal.signal(SIGTERM, signal.SIG_DFL)
    signal.signal(SIGHUP, signal.SIG_IGN)
    with stop_signals():
        os.kill(os.getpid(), SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), SIGTERM)
    assert (signal.getsignal(SIGINT), signal.getsignal(SIGTERM)) == (signal.SIG_IGN, signal.SIG_DFL)


@pytest.mark.parametrize(("heard", "ends"), [(100.0, 1300.0), (1000.0, 1300.0), (1200.0, 1500.0), (5000.0, 5300.0)])
def test_grace_lasts_at_least_its_time_and_as_long_as_something_is_said(heard: float, ends: float) -> None:
    assert Grace(least_s=1200, quiet_s=300).deadline(100.0, heard) == ends


def test_a_pump_knows_when_something_was_said() -> None:
    clock = Clock()
    reading, writing = os.pipe()
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line == "one":
            clock.now = 150.0
            os.write(writing, b"two\n")
        else:
            os.close(writing)

    pump = Pump({reading: on_line}, clock)
    os.write(writing, b"one\n")
    assert pump.until_end(lambda: clock.now + 20)
    pump.close()
    os.close(reading)
    assert (lines, pump.last_output_at) == (["one", "two"], 150.0)


def test_patience_that_is_over_ends_the_pumping() -> None:
    clock = Clock()
    reading, writing = os.pipe()
    pump = Pump({reading: _nothing}, clock)
    assert not pump.until_end(lambda: Grace(least_s=5).deadline(95.0, 90.0))
    os.close(writing)
    pump.close()
    os.close(reading)


def _nothing(_line: str) -> None:
    """Not looked at here."""
