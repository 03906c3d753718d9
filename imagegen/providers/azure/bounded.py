"""Requests of the SDK within a deadline. Azure names minutes to wait when it throttles, and the SDK would wait them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from imagegen.providers.deadline import CONNECT_S, READ_S, RETRIES

if TYPE_CHECKING:
    from azure.core.pipeline.transport import RequestsTransport

    from imagegen.providers.deadline import Deadline


class ClientOptions(TypedDict, total=False):
    """What clients and credentials of the SDK take."""

    transport: RequestsTransport
    retry_total: int
    connection_timeout: float
    read_timeout: float


def client_options(deadline: Deadline | None) -> ClientOptions:
    """What makes a client or a credential of the SDK keep to it; nothing where there is none."""
    if deadline is None:
        return {}
    return {
        "transport": _transport(deadline),
        "retry_total": RETRIES,
        "connection_timeout": CONNECT_S,
        "read_timeout": READ_S,
    }


def _transport(deadline: Deadline) -> RequestsTransport:
    """Every request and every pause of the SDK goes through its transport, also those of a sign-in."""
    from azure.core.exceptions import AzureError, ServiceRequestTimeoutError
    from azure.core.pipeline.transport import RequestsTransport

    class BoundedTransport(RequestsTransport):  # type: ignore[misc]  # the SDK imports it late, untyped
        def send(self, request: object, **options: object) -> object:
            if not deadline.left_s:
                raise ServiceRequestTimeoutError(f"there was no time left of {deadline.limit_s:g} seconds")
            # Of each: a host that answers slowly may take both.
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
                raise AzureError(f"Azure asks to wait for {duration:g} seconds")
            super().sleep(duration)

    return BoundedTransport()
