"""What signals mean while a program runs: stop it and let it clean up, or, from a person who repeats it, at once."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# A second SIGINT that comes sooner is the first one's echo: a terminal signals `make` and imagegen, and some tools
# pass on what their children got already.
MOMENT_S = 1.0


class StopWish:
    """Raises KeyboardInterrupt for the first signal, and again for a SIGINT that follows a SIGINT after a moment."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopping = False
        self._interrupted_at: float | None = None

    def __call__(self, number: int, _frame: FrameType | None = None) -> None:
        """Take a signal."""
        now = self._clock()
        first_at = self._interrupted_at
        if number == signal.SIGINT and first_at is None:
            self._interrupted_at = now
        if not self._stopping:
            self._stopping = True
            raise KeyboardInterrupt
        if number == signal.SIGINT and first_at is not None and now - first_at >= MOMENT_S:
            raise KeyboardInterrupt


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """While a child runs, SIGTERM and a lost terminal are a Ctrl-C, and only Ctrl-C is impatient.

    Signals that this process was started to ignore stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only there do signals arrive
        return
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    replaced = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}
    wish = StopWish()
    for number in replaced:
        signal.signal(number, wish)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
