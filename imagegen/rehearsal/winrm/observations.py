"""What a server saw: faults in the order they came, and what the conversation cost. Thread-safe values."""

from __future__ import annotations

import dataclasses
import threading


@dataclasses.dataclass(frozen=True)
class Cost:
    """`messages` are authenticated ones, `handshakes` answers of 401; bytes are those of HTTP bodies."""

    messages: int = 0
    handshakes: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    shells: int = 0
    commands: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in dataclasses.fields(Cost)}
        )


class Observations:
    """Filled by many threads, read by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, None] = {}
        self._cost = Cost()

    def fault(self, message: str) -> None:
        """Keep a fault; one that comes again, as a retried login does, is kept once."""
        with self._lock:
            self._faults.setdefault(message)

    def spend(self, cost: Cost) -> None:
        """Add to the cost."""
        with self._lock:
            self._cost += cost

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that was not as it should be, each once."""
        with self._lock:
            return tuple(self._faults)

    @property
    def cost(self) -> Cost:
        """The cost so far."""
        with self._lock:
            return self._cost
