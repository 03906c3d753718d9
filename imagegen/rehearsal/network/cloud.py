"""What the network asks of a cloud: which hosts it plays, which machines it started, how a child signs in to it."""

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
    """Plays its hosts. A context: the network opens it before the first request."""

    host_patterns: tuple[str, ...]
    authority_variables: tuple[str, ...] = ()
    """Variables of the cloud's own tools that name the file of trusted authorities."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        """Most clouds hold nothing open."""

    @property
    @abc.abstractmethod
    def credentials(self) -> Mapping[str, str]:
        """The variables with which a child signs in: throw-away ones."""

    @abc.abstractmethod
    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of the machine with this address is shut: "" when open, None when it is nobody's here."""

    @abc.abstractmethod
    def __call__(self, request: Request) -> Response:
        """The answer to a request for one of its hosts."""


class CloudOptions(Protocol):
    """What lies in a cloud from the start."""

    def make_cloud(self, on_machine: Callable[[MachineIdentity], None]) -> Cloud:
        """The cloud, which tells of each machine that it starts."""
