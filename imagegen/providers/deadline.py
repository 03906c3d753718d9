"""How long a cloud is asked in all where somebody waits for it: what is not answered by then is unknown."""

from __future__ import annotations

import time
from typing import Final

# Some ten times what a cloud needs on a slow line: for what a build asks first, and for what only `doctor` asks.
QUICK_LIMIT_S: Final = 20.0
THOROUGH_LIMIT_S: Final = 120.0
# Of one request.
CONNECT_S: Final = 5.0
READ_S: Final = 10.0
# Of the whole time, for one pause between two requests.
_PAUSE_SHARE: Final = 0.1
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
        return seconds <= min(_PAUSE_SHARE * self.limit_s, self.left_s)
