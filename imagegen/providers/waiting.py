"""Waiting for a cloud: looks that grow apart, within a limit. The clock is a parameter: a test waits for nothing."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

# Between one look and the next; the last one repeats. A cloud offers no call that blocks until something is done.
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0)

Found = TypeVar("Found")


@dataclasses.dataclass(frozen=True)
class Clock:
    """Seconds that only grow, and a pause."""

    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


def wait_for(look: Callable[[], Found | None], *, limit_s: float, clock: Clock) -> Found | None:
    """What `look` found, at once or later; None when the limit passed first. The last look is at the limit."""
    deadline = clock.now() + limit_s
    looks = 0
    while True:
        found = look()
        left = deadline - clock.now()
        if found is not None or left <= 0:
            return found
        clock.pause(min(PAUSES_S[min(looks, len(PAUSES_S) - 1)], left))
        looks += 1
