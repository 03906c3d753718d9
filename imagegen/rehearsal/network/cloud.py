"""The interface of a cloud's stand-in: its hosts, its answers, the credentials, and the WinRM ports of its machines."""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.network.machine import MachineIdentity
    from imagegen.rehearsal.network.messages import Request, Response


class Cloud(contextlib.AbstractContextManager["Cloud"]):
    """Answers the requests to the cloud's hosts. A context manager that the network opens before the first request."""

    host_patterns: tuple[str, ...]
    authority_variables: tuple[str, ...] = ()
    """Variables in which the cloud's own tools expect the CA file."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        """Does nothing: most clouds have nothing to close."""

    @property
    @abc.abstractmethod
    def credentials(self) -> Mapping[str, str]:
        """The environment variables of the temporary credentials of a child process."""

    @abc.abstractmethod
    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of this address is closed: "" if it is open, None if no machine has the address."""

    @abc.abstractmethod
    def admit(self, request: Request) -> Response | None:
        """The answer to a request for a private file in the cloud's storage; None if the request may have the file."""

    @abc.abstractmethod
    def __call__(self, request: Request) -> Response:
        """Answer a request to one of the cloud's hosts."""


class CloudOptions(Protocol):
    """The initial state of a cloud."""

    def make_cloud(self, on_machine: Callable[[MachineIdentity], None]) -> Cloud:
        """Make the cloud. It calls `on_machine` for each machine that it starts."""
