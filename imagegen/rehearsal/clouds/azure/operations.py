"""Long-running operations: for how many requests they are in progress, and what they do at their end."""

from __future__ import annotations

import dataclasses
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.clouds.azure.errors import not_found
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from collections.abc import Callable

# Not "0": clients treat it as missing and wait for their default of thirty seconds.
RETRY_AFTER = "1"


@dataclasses.dataclass
class _Operation:
    polls: int
    finish: Callable[[], None]
    resource_id: str


class Operations:
    """Operations by id. Requests for an operation or for its resource count as polls."""

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._running: dict[str, _Operation] = {}
        self._done: set[str] = set()

    def start(self, resource_id: str, location: str, polls: int, finish: Callable[[], None]) -> dict[str, str]:
        """Start an operation that is in progress for this number of polls. Returns the headers of the answer."""
        name = str(uuid.uuid4())
        self._running[name] = _Operation(polls, finish, resource_id.lower())
        if polls <= 0:
            self._end(name)
        url = (
            f"https://management.azure.com/subscriptions/{self._subscription}/providers/Microsoft.Compute"
            f"/locations/{location}/operations/{name}?api-version=2024-03-03"
        )
        return {"Azure-AsyncOperation": url, "Retry-After": RETRY_AFTER}

    def touch(self, resource_id: str) -> None:
        """Count a request for the resource as a poll of its operations."""
        for name in [key for key, running in self._running.items() if running.resource_id == resource_id.lower()]:
            self._poll(name)

    def status(self, name: str) -> Response:
        """Answer a poll of an operation."""
        if name in self._running and self._poll(name):
            value = {"name": name, "status": "InProgress"}
            return Response.of_json(200, value, headers={"Retry-After": RETRY_AFTER})
        if name not in self._done:
            raise not_found(f"operations/{name}")
        return Response.of_json(200, {"name": name, "status": "Succeeded"})

    def _poll(self, name: str) -> bool:
        """Count a poll. Returns whether the operation is still in progress."""
        operation = self._running[name]
        if operation.polls > 0:
            operation.polls -= 1
            return True
        self._end(name)
        return False

    def _end(self, name: str) -> None:
        self._running.pop(name).finish()
        self._done.add(name)
