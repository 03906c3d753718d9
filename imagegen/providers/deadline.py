"""A time limit for all requests to a cloud while somebody waits for them; a late answer counts as unknown."""

import time
from typing import Final

# About ten times what a cloud needs over a slow connection: before a build, and for `doctor`.
QUICK_LIMIT_S: Final = 20.0
THOROUGH_LIMIT_S: Final = 120.0
# For one request.
CONNECT_S: Final = 5.0
READ_S: Final = 10.0
RETRIES: Final = 1


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
