"""What a config names of the subscription's own: it is there, where the build can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.providers.azure.failures import explained
from imagegen.providers.checks import OK, WRONG, Check, run_check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.providers.azure.arm import Arm
    from imagegen.providers.azure.settings import Settings

_GROUPS_API: Final = "2021-04-01"
_NETWORKS_API: Final = "2024-05-01"
_VAULTS_API: Final = "2023-07-01"
_ENCRYPTION_SETS_API: Final = "2023-04-02"


def existing_checks(arm: Arm, settings: Settings) -> list[Check]:
    """The build's resource group, its network, key vault and disk encryption set, where the config names them."""
    checks = []
    if group := settings.build_resource_group:
        path = f"{arm.root}/resourceGroups/{group}"
        subject = f"resource group {group}"
        checks += run_check(subject, lambda: _placed(arm, subject, path, _GROUPS_API, settings.location))
        if settings.key_vault:
            vault = f"{path}/providers/Microsoft.KeyVault/vaults/{settings.key_vault}"
            checks += run_check(f"key vault {settings.key_vault}", lambda: _vault(arm, settings, vault))
    if settings.network.virtual_network:
        subject = f"virtual network {settings.network.virtual_network}"
        checks += run_check(subject, lambda: _network(arm, settings, subject))
    if keys := settings.disk_encryption_set:
        subject = f"disk encryption set {keys.rpartition('/')[2]}"
        checks += run_check(subject, lambda: _placed(arm, subject, keys, _ENCRYPTION_SETS_API, settings.location))
    return checks


def _placed(arm: Arm, subject: str, path: str, version: str, location: str) -> Iterator[Check]:
    """It is there, and in the build region."""
    with explained(f"looking for the {subject}", RefusedError):
        found = arm.get(path, version)
    yield _place(subject, found, location)


def _place(subject: str, found: Mapping[str, object] | None, location: str) -> Check:
    if found is None:
        return Check(subject, WRONG, "it is not there", "create it, or correct targets.azure")
    region = str(found.get("location", "")).replace(" ", "").lower()
    if region != location:
        return Check(
            subject,
            WRONG,
            f"it is in {region}, and the build in {location}",
            f"name one in {location}, or set targets.azure.location to {region}",
        )
    return Check(subject, OK, f"in {region}")


def _vault(arm: Arm, settings: Settings, path: str) -> Iterator[Check]:
    subject = f"key vault {settings.key_vault}"
    with explained(f"looking for the {subject}", RefusedError):
        found = arm.get(path, _VAULTS_API)
    placed = _place(subject, found, settings.location)
    if found is not None and placed.verdict == OK and not found.get("properties", {}).get("enabledForDeployment"):
        command = f"az keyvault update --name {settings.key_vault} --enabled-for-deployment true"
        yield Check(
            subject,
            WRONG,
            "virtual machines may not read it: it is not enabled for deployment",
            f"enable it: `{command}`",
        )
    else:
        yield placed


def _network(arm: Arm, settings: Settings, subject: str) -> Iterator[Check]:
    network = settings.network
    with explained(f"looking for the {subject}", RefusedError):
        if network.resource_group:
            networks = f"{arm.root}/resourceGroups/{network.resource_group}/providers/Microsoft.Network/virtualNetworks"
            single = arm.get(f"{networks}/{network.virtual_network}", _NETWORKS_API)
            found = [single] if single else []
        else:
            listed = arm.listed(f"{arm.root}/providers/Microsoft.Network/virtualNetworks", _NETWORKS_API)
            wanted = str(network.virtual_network).lower()
            found = [each for each in listed if str(each["name"]).lower() == wanted]
    if len(found) > 1:
        yield Check(
            subject,
            WRONG,
            f"{len(found)} networks have this name",
            "set targets.azure.network.resource_group and subnet",
        )
        return
    placed = _place(subject, found[0] if found else None, settings.location)
    yield placed
    if found and placed.verdict == OK:
        yield _subnet(network.subnet, [each["name"] for each in found[0].get("properties", {}).get("subnets", [])])


def _subnet(wanted: str | None, there: list[str]) -> Check:
    """A network of one subnet needs no name for it."""
    has = f"the network has {', '.join(there) or 'none'}"
    if wanted is None:
        if len(there) == 1:
            return Check(f"subnet {there[0]}", OK, "the network's only one")
        return Check("subnet", WRONG, has, "set targets.azure.network.subnet and resource_group")
    if wanted.lower() in [name.lower() for name in there]:
        return Check(f"subnet {wanted}", OK, "there")
    return Check(f"subnet {wanted}", WRONG, has, "correct targets.azure.network.subnet")
