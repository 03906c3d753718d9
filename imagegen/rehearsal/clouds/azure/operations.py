"""Long-running operations: how often a client is told to wait, and what is so when the waiting ends."""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import not_found
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from collections.abc import Callable

# Not "0": clients take nought for "not said" and wait their own thirty seconds.
RETRY_AFTER = "1"


@dataclasses.dataclass
class _Operation:
    looks: int
    finish: Callable[[], None]
    resource_id: str


class Operations:
    """Operations by id. Looking at the operation, or at the resource it works on, brings it closer to its end."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._running: dict[str, _Operation] = {}
        self._done: set[str] = set()

    def start(self, resource_id: str, location: str, looks: int, finish: Callable[[], None]) -> dict[str, str]:
        """Begin one that `looks` looks see running; the headers tell the client where to ask."""
        name = str(uuid.uuid4())
        self._running[name] = _Operation(looks, finish, resource_id.lower())
        if looks <= 0:
            self._end(name)
        url = (
            f"https://management.azure.com/subscriptions/{self._subscription}/providers/Microsoft.Compute"
            f"/locations/{location}/operations/{name}?api-version=2024-03-03"
        )
        return {"Azure-AsyncOperation": url, "Retry-After": RETRY_AFTER}

    def touch(self, resource_id: str) -> None:
        """Somebody looked at the resource itself."""
        for name in [key for key, each in self._running.items() if each.resource_id == resource_id.lower()]:
            self._look(name)

    def status(self, name: str) -> Response:
        """The answer to a poll."""
        if name in self._running and self._look(name):
            value = {"name": name, "status": "InProgress"}
            return Response.of_json(200, value, headers={"Retry-After": RETRY_AFTER})
        if name not in self._done:
            raise not_found(f"operations/{name}")
        return Response.of_json(200, {"name": name, "status": "Succeeded"})

    def _look(self, name: str) -> bool:
        operation = self._running[name]
        if operation.looks > 0:
            operation.looks -= 1
            return True
        self._end(name)
        return False

    def _end(self, name: str) -> None:
        self._running.pop(name).finish()
        self._done.add(name)
