"""Checks the permissions for a build by role assignments, because Azure has no dry run."""

import fnmatch
from collections.abc import Iterator, Sequence
from typing import Final, TypedDict

from imagegen.errors import RefusedError
from imagegen.providers.azure.arm import Arm
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import OK, WRONG, Check, run_check

_API: Final = "2022-04-01"
_IN_GALLERY: Final = (
    "Microsoft.Compute/galleries/read",
    "Microsoft.Compute/galleries/images/read",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Compute/galleries/images/versions/write",
)
_IN_BUILD: Final = (
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/generalize/action",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Resources/deployments/write",
)
# For temporary groups and vaults.
_TEMPORARY_GROUP: Final = (
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
)
_TEMPORARY_VAULT: Final = ("Microsoft.KeyVault/vaults/write", "Microsoft.KeyVault/vaults/delete")


class _Role(TypedDict, total=False):
    actions: list[str]
    notActions: list[str]


def permission_checks(arm: Arm, settings: Settings) -> list[Check]:
    """Check the permissions in the resource group of the gallery, and where the build creates the builder."""
    gallery = settings.gallery.resource_group
    vault = () if settings.key_vault else _TEMPORARY_VAULT
    if group := settings.build_resource_group:
        where, path, needed = f"resource group {group}", f"{arm.root}/resourceGroups/{group}", (*_IN_BUILD, *vault)
    else:
        where, path, needed = "the subscription", arm.root, (*_IN_BUILD, *vault, *_TEMPORARY_GROUP)
    return [
        *_checked(arm, f"resource group {gallery}", f"{arm.root}/resourceGroups/{gallery}", _IN_GALLERY),
        *_checked(arm, where, path, needed),
    ]


def _checked(arm: Arm, where: str, path: str, needed: Sequence[str]) -> list[Check]:
    subject = f"permissions in {where}"

    def look() -> Iterator[Check]:
        with explain_errors(f"reading the permissions in {where}", RefusedError):
            granted = list(arm.listed(f"{path}/providers/Microsoft.Authorization/permissions", _API))
        if missing := [action for action in needed if not _allows(granted, action)]:
            yield Check(
                subject,
                WRONG,
                f"no role assignment allows {', '.join(missing)}",
                "give these credentials a role that allows them there, for example Contributor",
            )
        else:
            yield Check(subject, OK, "role assignments allow the build (deny assignments and policies are not read)")

    return run_check(subject, look)


def _allows(granted: Sequence[_Role], action: str) -> bool:
    """Whether at least one role allows an action."""
    return any(
        _is_among(action, role.get("actions") or []) and not _is_among(action, role.get("notActions") or [])
        for role in granted
    )


def _is_among(action: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)
