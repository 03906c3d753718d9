"""What happened on the network: every request, every fault, and the injected faults."""

from __future__ import annotations

import collections
import dataclasses
import fnmatch
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from imagegen.rehearsal.network.messages import Request, Response

MAX_ENTRIES = 100_000
MAX_FAULTS = 1_000


@dataclasses.dataclass(frozen=True)
class Entry:
    """One request and its status. Bodies, headers and queries are not recorded: they contain secrets."""

    method: str
    host: str
    path: str
    status: int
    note: str = ""


class Journal:
    """Requests and faults in order of arrival. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: collections.deque[Entry] = collections.deque(maxlen=MAX_ENTRIES)
        self._faults: collections.deque[str] = collections.deque(maxlen=MAX_FAULTS)

    @property
    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries)

    @property
    def faults(self) -> list[str]:
        with self._lock:
            return list(self._faults)

    def record(self, entry: Entry) -> None:
        with self._lock:
            self._entries.append(entry)

    def add_fault(self, text: str) -> None:
        """Record something that must not happen. Repeated faults are recorded once."""
        with self._lock:
            if text not in self._faults:
                self._faults.append(text)

    def notes(self, host_pattern: str = "*") -> list[str]:
        """The operations in the requests to matching hosts, in order."""
        return [entry.note for entry in self.entries if entry.note and fnmatch.fnmatch(entry.host, host_pattern)]


# None leaves the answer unchanged, and does not count.
Mutate = Callable[["Request", "Response"], "Response | None"]
When = Callable[["Request"], bool]


@dataclasses.dataclass
class Injection:
    """A fault to inject: `response` instead of the host's answer, or `mutate` applied to it.

    It is triggered by at most `times` matching requests, or by all if `times` is None.
    """

    host_pattern: str
    path_pattern: str
    response: Response | None
    mutate: Mutate | None
    when: When | None
    times: int | None
    triggered: int = 0

    def matches(self, request: Request) -> bool:
        return (
            (self.times is None or self.triggered < self.times)
            and fnmatch.fnmatch(request.host, self.host_pattern)
            and fnmatch.fnmatch(request.path, self.path_pattern)
            and (self.when is None or self.when(request))
        )

    @property
    def remaining(self) -> int:
        """How many times it must still be triggered: at least once in all if there is no limit."""
        return max((1 if self.times is None else self.times) - self.triggered, 0)


class Injections:
    """The injected faults of all hosts. A request triggers the oldest one that matches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Injection] = []

    def add(self, injection: Injection) -> None:
        if (injection.response is None) == (injection.mutate is None):
            raise ValueError("an injection has either a response or a mutate function")
        with self._lock:
            self._waiting.append(injection)

    def exchange(self, request: Request, answer: Callable[[], Response]) -> Response:
        """Return the host's own answer, or that of the fault which the request triggers."""
        injection = self._take(request)
        if injection is None:
            return answer()
        if injection.mutate is None:
            return cast("Response", injection.response)
        own = answer()
        changed = injection.mutate(request, own)
        if changed is not None:
            return changed
        with self._lock:
            injection.triggered -= 1
        return own

    def _take(self, request: Request) -> Injection | None:
        with self._lock:
            for injection in self._waiting:
                if injection.matches(request):
                    injection.triggered += 1
                    return injection
        return None

    @property
    def untriggered(self) -> int:
        """How many faults were not triggered: a test that does not trigger its faults proves nothing."""
        with self._lock:
            return sum(injection.remaining for injection in self._waiting)
