"""What a server observed: faults in order, and the cost of the connection. Thread-safe."""

from __future__ import annotations

import dataclasses
import threading


@dataclasses.dataclass(frozen=True)
class Cost:
    """`messages` are authenticated messages, `handshakes` responses with 401. Bytes are those of HTTP bodies."""

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
    """Any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, None] = {}
        self._cost = Cost()

    def add_fault(self, message: str) -> None:
        """Add a fault. A repeated fault, such as of a retried login, is kept once."""
        with self._lock:
            self._faults.setdefault(message)

    def add_cost(self, cost: Cost) -> None:
        """Add to the cost."""
        with self._lock:
            self._cost += cost

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults, each once."""
        with self._lock:
            return tuple(self._faults)

    @property
    def cost(self) -> Cost:
        """The cost so far."""
        with self._lock:
            return self._cost
