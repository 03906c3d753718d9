"""Checks that the resources that a config names exist, and that the build can use them."""

from collections.abc import Iterator, Mapping
from typing import Final

from imagegen.errors import RefusedError
from imagegen.providers.azure.arm import Arm
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import OK, WRONG, Check, run_check

_GROUPS_API: Final = "2021-04-01"
_NETWORKS_API: Final = "2024-05-01"
_VAULTS_API: Final = "2023-07-01"
_ENCRYPTION_SETS_API: Final = "2023-04-02"


def existing_checks(arm: Arm, settings: Settings) -> list[Check]:
    """Check the resource group, key vault, network and disk encryption set that the config names."""
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
    """Check that a resource exists in the build region."""
    with explain_errors(f"looking for the {subject}", RefusedError):
        resource = arm.get(path, version)
    yield _check_location(subject, resource, location)


def _check_location(subject: str, resource: Mapping[str, object] | None, location: str) -> Check:
    if resource is None:
        return Check(subject, WRONG, "it does not exist", "create it, or correct targets.azure")
    region = str(resource.get("location", "")).replace(" ", "").lower()
    if region != location:
        return Check(
            subject,
            WRONG,
            f"it is in {region}, but the build is in {location}",
            f"choose one in {location}, or set targets.azure.location to {region}",
        )
    return Check(subject, OK, f"in {region}")


def _vault(arm: Arm, settings: Settings, path: str) -> Iterator[Check]:
    subject = f"key vault {settings.key_vault}"
    with explain_errors(f"looking for the {subject}", RefusedError):
        found = arm.get(path, _VAULTS_API)
    placed = _check_location(subject, found, settings.location)
    if found is not None and placed.verdict == OK and not found.get("properties", {}).get("enabledForDeployment"):
        yield Check(
            subject,
            WRONG,
            "it is not enabled for deployment, so virtual machines cannot read it",
            f"enable it: `az keyvault update --name {settings.key_vault} --enabled-for-deployment true`",
        )
    else:
        yield placed


def _network(arm: Arm, settings: Settings, subject: str) -> Iterator[Check]:
    network = settings.network
    with explain_errors(f"looking for the {subject}", RefusedError):
        if network.resource_group:
            networks = f"{arm.root}/resourceGroups/{network.resource_group}/providers/Microsoft.Network/virtualNetworks"
            single = arm.get(f"{networks}/{network.virtual_network}", _NETWORKS_API)
            found = [single] if single else []
        else:
            networks = f"{arm.root}/providers/Microsoft.Network/virtualNetworks"
            found = [
                candidate
                for candidate in arm.listed(networks, _NETWORKS_API)
                if str(candidate["name"]).lower() == str(network.virtual_network).lower()
            ]
    if len(found) > 1:
        yield Check(
            subject,
            WRONG,
            f"{len(found)} networks have this name",
            "set targets.azure.network.resource_group and subnet",
        )
        return
    placed = _check_location(subject, found[0] if found else None, settings.location)
    yield placed
    if found and placed.verdict == OK:
        yield _subnet(network.subnet, [subnet["name"] for subnet in found[0].get("properties", {}).get("subnets", [])])


def _subnet(wanted: str | None, names: list[str]) -> Check:
    """Check the subnet, which may be left out where the network has only one."""
    has = f"the network has {', '.join(names) or 'no subnet'}"
    if wanted is None:
        if len(names) == 1:
            return Check(f"subnet {names[0]}", OK, "the only subnet of the network")
        return Check("subnet", WRONG, has, "set targets.azure.network.subnet and resource_group")
    if wanted.lower() in [name.lower() for name in names]:
        return Check(f"subnet {wanted}", OK, "exists")
    return Check(f"subnet {wanted}", WRONG, has, "correct targets.azure.network.subnet")
