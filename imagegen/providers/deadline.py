"""How long a cloud is asked in all where a build waits for it: what is not answered by then is unknown."""

from __future__ import annotations

import time
from typing import Final

# Some ten times what a cloud needs on a slow line.
QUICK_LIMIT_S: Final = 20.0
# Of one request, and of one pause between two.
CONNECT_S: Final = 5.0
READ_S: Final = 10.0
PAUSE_S: Final = 2.0
RETRIES: Final = 1


class Deadline:
    """Begins when it is made; shared by all requests that it holds for."""

    def __init__(self, limit_s: float = QUICK_LIMIT_S) -> None:
        self.limit_s = limit_s
        self._end = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """Never less than nothing."""
        return max(0.0, self._end - time.monotonic())

    def allows_pause(self, seconds: float) -> bool:
        """Whether it is worth waiting for so long before the next attempt."""
        return seconds <= min(PAUSE_S, self.left_s)
