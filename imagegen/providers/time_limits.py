"""The time limits of a cloud's answers: for all requests while somebody waits for them, and for one long operation.

Requests that share a deadline fail after it, and a late answer counts as unknown. An operation is polled with growing
pauses, up to a limit; its clock is a parameter, so that tests do not wait.
"""

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Final, TypeVar

# About ten times what a cloud needs over a slow connection: before a build, and for `doctor`.
QUICK_LIMIT_S: Final = 20.0
THOROUGH_LIMIT_S: Final = 120.0
# For one request.
CONNECT_S: Final = 5.0
READ_S: Final = 10.0
RETRIES: Final = 1

# The pauses between two polls; the last one repeats. No cloud offers a call that blocks until an operation has ended.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
# Longer than throttling or a network outage usually lasts, and short compared with the time of a copy.
FAILING_LIMIT_S = 30 * 60.0

Result = TypeVar("Result")


class Deadline:
    """Starts when it is created; all requests to which it applies share it."""

    def __init__(self, limit_s: float = QUICK_LIMIT_S) -> None:
        self.limit_s = limit_s
        self._end = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """The seconds that are left; 0 after the deadline."""
        return max(0.0, self._end - time.monotonic())

    def allows_pause(self, seconds: float) -> bool:
        """Whether a pause of that length before a retry still fits."""
        # One pause may take a tenth of the limit.
        return seconds <= min(self.limit_s / 10, self.left_s)


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
