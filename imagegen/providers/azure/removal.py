"""Removes leftovers from one subscription one by one, and waits for each deletion."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypedDict

from imagegen.providers import Leftover
from imagegen.providers.azure import leftovers as kinds
from imagegen.providers.azure import vault
from imagegen.providers.azure.arm import Arm
from imagegen.providers.tags import EXPIRES_AT, RUN_ID
from imagegen.providers.waiting import Clock, wait_for

DeleteSecret = Callable[[str, str], None]

# Azure needs some minutes for a group with a machine.
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


class _Version(TypedDict, total=False):
    tags: dict[str, str]
    properties: _State


def remove(
    arm: Arm, leftovers: Sequence[Leftover], clock: Clock, delete_secret: DeleteSecret
) -> Iterator[tuple[Leftover, str]]:
    """Remove leftovers, and yield the reason for each that remains; empty where it is gone.

    A deployment identifies its resources, so it is kept while any resource remains.
    """
    has_failed = False
    for leftover in leftovers:
        if has_failed and leftover.kind == kinds.DEPLOYMENT:
            yield leftover, "its resources still exist"
            continue
        failure = _remove_one(arm, leftover, clock, delete_secret)
        has_failed = has_failed or bool(failure)
        yield leftover, failure


def _change_of(version: _Version | None, leftover: Leftover) -> str:
    """How a gallery version has changed since it was listed; empty where it has not."""
    if version is None:
        return ""
    tags = version.get("tags") or {}
    if (tags.get(RUN_ID), tags.get(EXPIRES_AT)) != (leftover.run_id, leftover.expires_at):
        return "it has other tags now"
    state = str(version.get("properties", {}).get("provisioningState", ""))
    # A failed version may have been completed, or be updated by another run.
    return "" if state == leftover.state else f"it is {state} now"


def _remove_one(arm: Arm, leftover: Leftover, clock: Clock, delete_secret: DeleteSecret) -> str:
    from azure.core.exceptions import AzureError, HttpResponseError

    version = _VERSION_OF[leftover.kind]
    try:
        if leftover.kind == kinds.VERSION and (change := _change_of(arm.get(leftover.id, version), leftover)):
            return f"it has changed since it was listed: {change}"
        if leftover.kind == kinds.DELETED_VAULT:
            arm.post(f"{leftover.id}/purge", version)
        elif leftover.kind == vault.KIND:
            # The Resource Manager lists secrets, but cannot delete them.
            name, _, secret = leftover.name.partition("/")
            delete_secret(name, secret)
        else:
            arm.delete(leftover.id, version)
        is_gone = wait_for(lambda: arm.get(leftover.id, version) is None or None, limit_s=LIMIT_S, clock=clock)
    except AzureError as error:
        if isinstance(error, HttpResponseError) and error.error is not None and error.error.code:
            return f"{error.error.code}: {error.error.message}"
        return next(iter(str(error).splitlines()), type(error).__name__)
    return "" if is_gone else f"Azure did not delete it within {LIMIT_S / 60:g} minutes"
