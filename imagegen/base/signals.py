"""Handles signals while a program runs, and waits for threads in a way that a signal always ends.

The first signal stops a program and lets it clean up, a second Ctrl-C ends it at once.
"""

import concurrent.futures
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Final, TypeVar

# Python misses a signal that arrives just before it begins to wait, and handles it when that wait ends.
SIGNAL_CHECK_S: Final = 0.2

_Result = TypeVar("_Result")


def as_finished(
    futures: Sequence[concurrent.futures.Future[_Result]],
) -> Iterator[concurrent.futures.Future[_Result]]:
    """Each future when it has finished."""
    pending = set(futures)
    while pending:
        finished, pending = concurrent.futures.wait(
            pending, timeout=SIGNAL_CHECK_S, return_when=concurrent.futures.FIRST_COMPLETED
        )
        yield from finished


# A SIGINT that follows sooner is a duplicate of the first: a terminal signals both `make` and imagegen, and some tools
# also pass the signal on to their children.
DUPLICATE_WITHIN_S = 1.0


class StopHandler:
    """Raises KeyboardInterrupt for the first signal, and for each SIGINT that follows a SIGINT and is no duplicate."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stopping = False
        self._interrupted_at: float | None = None

    def __call__(self, number: int, _frame: FrameType | None = None) -> None:
        """Handle a signal."""
        now = self._clock()
        first_at = self._interrupted_at
        if number == signal.SIGINT and first_at is None:
            self._interrupted_at = now
        if not self._stopping:
            self._stopping = True
            raise KeyboardInterrupt
        if number == signal.SIGINT and first_at is not None and now - first_at >= DUPLICATE_WITHIN_S:
            raise KeyboardInterrupt


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """While a program runs, SIGTERM and a closed terminal act like Ctrl-C. Only a second Ctrl-C kills.

    Signals that this process ignored from its start stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers and receives signals
        return
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    replaced = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}
    stop = StopHandler()
    for number in replaced:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in replaced.items():
            signal.signal(number, handler)
