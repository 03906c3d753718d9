"""Waits for threads in a way that a signal always ends."""

import concurrent.futures
from collections.abc import Iterator, Sequence
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
