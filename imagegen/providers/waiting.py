"""Waiting for a cloud: looks that grow apart, within a limit. The clock is a parameter: a test waits for nothing."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

# Between one look and the next; the last one repeats. A cloud offers no call that blocks until something is done.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)
# Longer than a cloud throttles an account or a network is away, and short beside what a copy takes.
FAILING_LIMIT_S = 30 * 60.0

Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True)
class Clock:
    """Seconds that only grow, and a pause."""

    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


def _none_passes(_error: Exception) -> bool:
    return False


def wait_for(
    look: Callable[[], Found | None],
    *,
    limit_s: float,
    clock: Clock,
    passes: Callable[[Exception], bool] = _none_passes,
) -> Found | None:
    """What `look` found, at once or later; None when the limit passed first. The last look is at the limit.

    An error of `look` for which `passes` is true counts as "not yet"; any other ends the wait. It is raised when the
    limit has passed, or, with a note, when no look has succeeded for FAILING_LIMIT_S.
    """
    deadline = clock.now() + limit_s
    looks = 0
    failing_since: float | None = None
    while True:
        try:
            found = look()
        except Exception as error:
            if not passes(error):
                raise
            now = clock.now()
            failing_since = now if failing_since is None else failing_since
            if now - failing_since >= FAILING_LIMIT_S:
                error.add_note(f"every attempt failed for {FAILING_LIMIT_S / 60:g} minutes")
                raise
            if now >= deadline:
                raise
        else:
            now = clock.now()
            failing_since = None
            if found is not None or now >= deadline:
                return found
        clock.pause(min(PAUSES_S[min(looks, len(PAUSES_S) - 1)], deadline - now))
        looks += 1
