"""What happened on the network: every request, every fault, and the faults that a test asked for."""

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
    """One request and its status; bodies, headers and queries are not kept, for they hold secrets."""

    method: str
    host: str
    path: str
    status: int
    note: str = ""


class Journal:
    """Requests and faults in order of arrival; safe to use from every connection's thread."""

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

    def fault(self, text: str) -> None:
        """Note what must not happen; a fault that repeats is one fault."""
        with self._lock:
            if text not in self._faults:
                self._faults.append(text)

    def notes(self, host_pattern: str = "*") -> list[str]:
        """The operations that were asked of the hosts of that name, in order."""
        return [entry.note for entry in self.entries if entry.note and fnmatch.fnmatch(entry.host, host_pattern)]


# None: the answer stays as it is, and this was not the moment.
Mutate = Callable[["Request", "Response"], "Response | None"]
When = Callable[["Request"], bool]


@dataclasses.dataclass
class Injection:
    """A fault to inject: `response` instead of the host's answer, or `mutate` applied to it.

    It is met `times` times at most, or, with None, whenever it matches.
    """

    host_pattern: str
    path_pattern: str
    response: Response | None
    mutate: Mutate | None
    when: When | None
    times: int | None
    met: int = 0

    def matches(self, request: Request) -> bool:
        return (
            (self.times is None or self.met < self.times)
            and fnmatch.fnmatch(request.host, self.host_pattern)
            and fnmatch.fnmatch(request.path, self.path_pattern)
            and (self.when is None or self.when(request))
        )

    @property
    def unmet(self) -> int:
        """How often it still waits; what may be met without limit has to be met once."""
        return max((1 if self.times is None else self.times) - self.met, 0)


class Injections:
    """The faults that wait for their request, for every host alike; the oldest that matches is used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Injection] = []

    def add(self, injection: Injection) -> None:
        if (injection.response is None) == (injection.mutate is None):
            raise ValueError("an injection has either a response or a mutate function")
        with self._lock:
            self._waiting.append(injection)

    def exchange(self, request: Request, answer: Callable[[], Response]) -> Response:
        """What the client gets: the host's own answer, unless a fault is met."""
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
            injection.met -= 1
        return own

    def _take(self, request: Request) -> Injection | None:
        with self._lock:
            for injection in self._waiting:
                if injection.matches(request):
                    injection.met += 1
                    return injection
        return None

    @property
    def unused(self) -> int:
        """How many injected faults still wait: a test that injects what never comes proves nothing."""
        with self._lock:
            return sum(injection.unmet for injection in self._waiting)
