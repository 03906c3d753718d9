"""Polls a cloud with growing pauses, up to a limit. The clock is a parameter, so that tests do not wait."""

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import TypeVar

# The pauses between two polls; the last one repeats. No cloud offers a call that blocks until an operation has ended.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
# Longer than throttling or a network outage usually lasts, and short compared with the time of a copy.
FAILING_LIMIT_S = 30 * 60.0

Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Clock:
    """A monotonic time in seconds, and a pause."""

    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


def wait_for(
    poll: Callable[[], Result | None],
    *,
    limit_s: float,
    clock: Clock,
    is_transient: Callable[[Exception], bool] = lambda _: False,
) -> Result | None:
    """Call `poll` until it returns a result, and return that; None after the limit. The last poll is at the limit.

    A transient error of `poll` counts as no result yet; any other error ends the wait. A transient error is raised when
    the limit has passed, or, with a note, when no poll has succeeded for FAILING_LIMIT_S.
    """
    deadline = clock.now() + limit_s
    failing_since: float | None = None
    pauses_s = itertools.chain(PAUSES_S, itertools.repeat(PAUSES_S[-1]))
    while True:
        try:
            result = poll()
        except Exception as error:
            if not is_transient(error):
                raise
            now = clock.now()
            failing_since = now if failing_since is None else failing_since
            if now - failing_since >= FAILING_LIMIT_S:
                error.add_note(f"every attempt failed for {FAILING_LIMIT_S / 60:g} minutes")
                raise
            if now >= deadline:
                raise
        else:
            now, failing_since = clock.now(), None
            if result is not None or now >= deadline:
                return result
        clock.pause(min(next(pauses_s), deadline - now))
