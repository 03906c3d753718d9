"""Removes leftovers from one subscription, one after another: each is gone before the next is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypedDict

from imagegen.providers.azure import leftovers as kinds
from imagegen.providers.azure import vault
from imagegen.providers.tags import EXPIRES_AT, RUN_ID
from imagegen.providers.waiting import Clock, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imagegen.providers import Leftover
    from imagegen.providers.azure.arm import Arm

    DeleteSecret = Callable[[str, str], None]

# A group with a machine in it takes Azure some minutes.
LIMIT_S: Final = 20 * 60.0
_VERSION_OF: Final = {
    kinds.GROUP: kinds.RESOURCES_API,
    kinds.DEPLOYMENT: kinds.RESOURCES_API,
    kinds.DELETED_VAULT: kinds.VAULTS_API,
    kinds.VERSION: kinds.VERSIONS_API,
    vault.KIND: vault.API,
    **dict(kinds.TYPES.values()),
}


class _State(TypedDict, total=False):
    provisioningState: str


class _Found(TypedDict, total=False):
    tags: dict[str, str]
    properties: _State


def remove(
    arm: Arm, leftovers: Sequence[Leftover], clock: Clock, delete_secret: DeleteSecret
) -> Iterator[tuple[Leftover, str]]:
    """Each leftover with the reason why it is still there; an empty one means that it is gone.

    A deployment knows what it made: while any of that is still there, it stays too, or nobody would find the rest.
    """
    stuck = False
    for leftover in leftovers:
        if stuck and leftover.kind == kinds.DEPLOYMENT:
            yield leftover, "what it made is still there"
            continue
        why_not = _remove_one(arm, leftover, clock, delete_secret)
        stuck = stuck or bool(why_not)
        yield leftover, why_not


def _change_of(found: _Found | None, leftover: Leftover) -> str:
    """What makes a gallery version, as it is now, another than the one that was judged; empty where nothing does."""
    if found is None:
        return ""
    tags = found.get("tags") or {}
    if (tags.get(RUN_ID), tags.get(EXPIRES_AT)) != (leftover.run_id, leftover.expires_at):
        return "its tags are others now"
    state = str(found.get("properties", {}).get("provisioningState", ""))
    # One that was failing may be finished by now, or wanted again.
    return "" if state == leftover.state else f"it is {state} now"


def _remove_one(arm: Arm, leftover: Leftover, clock: Clock, delete_secret: DeleteSecret) -> str:
    from azure.core.exceptions import AzureError, HttpResponseError

    version = _VERSION_OF[leftover.kind]
    try:
        if leftover.kind == kinds.VERSION and (change := _change_of(arm.get(leftover.id, version), leftover)):
            return f"it has changed since it was looked at: {change}"
        if leftover.kind == kinds.DELETED_VAULT:
            arm.post(f"{leftover.id}/purge", version)
        elif leftover.kind == vault.KIND:
            # The Resource Manager lists secrets, and only their vault deletes them.
            name, _, secret = leftover.name.partition("/")
            delete_secret(name, secret)
        else:
            arm.delete(leftover.id, version)
        gone = wait_for(lambda: arm.get(leftover.id, version) is None or None, limit_s=LIMIT_S, clock=clock)
    except HttpResponseError as error:
        if error.error is not None and error.error.code:
            return f"{error.error.code}: {error.error.message}"
        return next(iter(str(error).splitlines()), type(error).__name__)
    except AzureError as error:
        return next(iter(str(error).splitlines()), type(error).__name__)
    return "" if gone else f"Azure was not done within {LIMIT_S / 60:g} minutes"
