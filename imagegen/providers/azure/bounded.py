"""Limits requests of the SDK to a deadline. When Azure throttles, the SDK would otherwise wait for minutes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from imagegen.providers.deadline import CONNECT_S, READ_S, RETRIES, Deadline

if TYPE_CHECKING:
    from azure.core.pipeline.transport import RequestsTransport


class ClientOptions(TypedDict, total=False):
    """Options of the SDK's clients and credentials."""

    transport: RequestsTransport
    retry_total: int
    connection_timeout: float
    read_timeout: float


def client_options(deadline: Deadline | None) -> ClientOptions:
    """The options that enforce a deadline; empty without one."""
    if deadline is None:
        return {}
    return {
        "transport": _transport(deadline),
        "retry_total": RETRIES,
        "connection_timeout": CONNECT_S,
        "read_timeout": READ_S,
    }


def _transport(deadline: Deadline) -> RequestsTransport:
    """The transport, which makes every request and every pause of the SDK, including those of a sign-in."""
    from azure.core.exceptions import AzureError, ServiceRequestTimeoutError
    from azure.core.pipeline.transport import RequestsTransport

    class BoundedTransport(RequestsTransport):  # type: ignore[misc]  # the SDK imports it late, untyped
        def send(self, request: object, **options: object) -> object:
            if not deadline.left_s:
                raise ServiceRequestTimeoutError(f"the limit of {deadline.limit_s:g} seconds has passed")
            # Both, because a slow host may use both in full.
            return super().send(
                request,
                **options,
                **{
                    name: min(s, deadline.left_s)
                    for name, s in {"connection_timeout": CONNECT_S, "read_timeout": READ_S}.items()
                },
            )

        def sleep(self, duration: float) -> None:
            if not deadline.allows_pause(duration):
                raise AzureError(f"Azure requests a pause of {duration:g} seconds")
            super().sleep(duration)

    return BoundedTransport()
