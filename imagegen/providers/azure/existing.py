"""Checks that the resources that a config names exist, and that the build can use them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from imagegen.base.errors import RefusedError
from imagegen.providers.azure.client import Arm
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.gallery import SUCCEEDED, definition_of, fixed_version, is_version_name, region_key
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check, run_check
from imagegen.providers.tags import IMAGE_ID

_GALLERIES_API: Final = "2024-03-03"
_NETWORKS_API: Final = "2024-05-01"
_NETWORKS: Final = "providers/Microsoft.Network/virtualNetworks"
_STANDARD: Final = "Standard"
# The default of Azure.
_FIRST: Final = "V1"
# The security types of a definition that accept the image of a builder with this one; Azure ignores case.
_ACCEPTED_BY: Final = {
    _STANDARD: frozenset(
        {"standard", "trustedlaunchsupported", "confidentialvmsupported", "trustedlaunchandconfidentialvmsupported"}
    ),
    "TrustedLaunch": frozenset({"trustedlaunch", "trustedlaunchsupported", "trustedlaunchandconfidentialvmsupported"}),
    "ConfidentialVM": frozenset(
        {"confidentialvm", "confidentialvmsupported", "trustedlaunchandconfidentialvmsupported"}
    ),
}


def definition_checks(arm: Arm, settings: Settings) -> list[Check]:
    """Check whether the image definition accepts the image of such a builder.

    Azure itself reports that only after the build, at the capture.
    """
    subject = f"image definition {definition_of(settings)}"
    return run_check(
        subject, lambda: _definition(arm, settings, subject), explain_errors(f"reading the {subject}", RefusedError)
    )


def version_checks(arm: Arm, settings: Settings, kubernetes: str) -> list[Check]:
    """Check that a version that the config decides is free; one from the time always is."""
    name = fixed_version(settings, kubernetes)
    if name is None:
        return []
    subject = f"version {definition_of(settings)}/{name}"
    return run_check(
        "version", lambda: [_version(arm, settings, subject, name)], explain_errors(f"reading {subject}", RefusedError)
    )


def group_checks(arm: Arm, settings: Settings) -> list[Check]:
    """Check the resource group that the config names. Packer's plugin builds wherever it is."""
    group = settings.build_resource_group
    if group is None:
        return []
    path = f"{arm.root}/resourceGroups/{group}"
    return _find(
        f"resource group {group}", lambda subject: [_placed(subject, arm.get(path, "2021-04-01"), settings.location)]
    )


def existing_checks(arm: Arm, settings: Settings) -> Iterator[Check]:
    """Check the key vault, network and disk encryption set that the config names."""
    location = settings.location
    if vault := settings.key_vault:
        path = f"{arm.root}/resourceGroups/{settings.build_resource_group}"
        yield from _find(f"key vault {vault}", lambda subject: [_vault(arm, subject, path, vault, location)])
    if network := settings.network.virtual_network:
        yield from _find(f"virtual network {network}", lambda subject: _network(arm, settings, subject, network))
    if keys := settings.disk_encryption_set:
        yield from _find(
            f"disk encryption set {keys.rpartition('/')[2]}",
            lambda subject: [_placed(subject, arm.get(keys, "2023-04-02"), location)],
        )


def _find(subject: str, look: Callable[[str], Iterable[Check]]) -> list[Check]:
    return run_check(subject, lambda: look(subject), explain_errors(f"looking for the {subject}", RefusedError))


def _definition_path(arm: Arm, settings: Settings) -> str:
    group, gallery, name = definition_of(settings)
    return f"{arm.root}/resourceGroups/{group}/providers/Microsoft.Compute/galleries/{gallery}/images/{name}"


def _definition(arm: Arm, settings: Settings, subject: str) -> list[Check]:
    image = arm.get(_definition_path(arm, settings), _GALLERIES_API)
    if image is None:
        return [Check(subject, WRONG, "it does not exist", definition_of(settings).missing)]
    found = image["properties"]
    features = {str(feature.get("name")).lower(): feature.get("value") for feature in found.get("features") or []}
    security = features.get("securitytype") or _STANDARD
    return [
        *_wrong_kind(subject, found, settings.generation),
        *_wrong_security(subject, security, settings.security_type),
    ] or [
        Check(
            subject,
            OK,
            f"{found.get('osType')}, {found.get('osState')}, {found.get('hyperVGeneration') or _FIRST}, {security}",
        )
    ]


def _wrong_kind(subject: str, found: Mapping[str, str], generation: int) -> Iterator[Check]:
    another = "write another definition to targets.azure.gallery.definition, or create one"
    has = found.get("hyperVGeneration") or _FIRST
    kinds = (
        ("OS type", found.get("osType") or "", "Windows", f"{another} with --os-type Windows"),
        ("OS state", found.get("osState") or "", "Generalized", f"{another} with --os-state Generalized"),
        ("architecture", found.get("architecture") or "x64", "x64", f"{another} with --architecture x64"),
        (
            "Hyper-V generation",
            has,
            f"V{generation}",
            f"set targets.azure.generation to {has.removeprefix('V')}, or {another} of generation V{generation}",
        ),
    )
    for what, actual, expected, hint in kinds:
        if actual.lower() != expected.lower():
            yield Check(subject, WRONG, f"its {what} is {actual}, but the image has {expected}", hint)


def _wrong_security(subject: str, actual: str, expected: str) -> Iterator[Check]:
    feature = "without a SecurityType" if expected == _STANDARD else f"with --features SecurityType={expected}"
    if actual.lower() not in _ACCEPTED_BY[expected]:
        yield Check(
            subject,
            WRONG,
            f"its security type is {actual}, but targets.azure.security_type is {expected}",
            f"create a definition {feature}, or change targets.azure.security_type",
        )
    elif actual.lower().endswith("supported"):
        # Seen in 2023 and 2024 (packer-plugin-azure#304, microsoft/STL#4682); Azure may have fixed it since.
        yield Check(
            subject,
            UNKNOWN,
            f"its security type is {actual}, for which Azure has rejected images captured from a virtual machine",
            f"if the capture fails, create a definition {feature}",
        )


def _version(arm: Arm, settings: Settings, subject: str, name: str) -> Check:
    instead = "set targets.azure.gallery.version to date"
    if not is_version_name(name):
        return Check(subject, WRONG, "a gallery version needs three integers", instead)
    version = arm.get(f"{_definition_path(arm, settings)}/versions/{name}", _GALLERIES_API)
    if version is None:
        return Check(subject, OK, "the version is free")
    state = version.get("properties", {}).get("provisioningState")
    if state == SUCCEEDED and IMAGE_ID in (version.get("tags") or {}):
        # Only a lock tells which image it is.
        return Check(
            subject,
            UNKNOWN,
            "it exists: `build` publishes it if it is the image of this config, and otherwise fails",
            f"if it is another image, {instead}",
        )
    return Check(
        subject,
        WRONG,
        f"it exists already ({state}), and imagegen never overwrites a version",
        f"{instead}, or delete it: `{definition_of(settings).deletion(name)}`",
    )


def _placed(subject: str, resource: Mapping[str, object] | None, location: str) -> Check:
    """Check that a resource exists in the build region."""
    if resource is None:
        return Check(subject, WRONG, "it does not exist", "create it, or correct targets.azure")
    region = region_key(str(resource.get("location", "")))
    if region != location:
        return Check(
            subject,
            WRONG,
            f"it is in {region}, but the build is in {location}",
            f"choose one in {location}, or set targets.azure.location to {region}",
        )
    return Check(subject, OK, f"in {region}")


def _vault(arm: Arm, subject: str, group: str, name: str, location: str) -> Check:
    found = arm.get(f"{group}/providers/Microsoft.KeyVault/vaults/{name}", "2023-07-01")
    placed = _placed(subject, found, location)
    if found is not None and placed.verdict == OK and not found.get("properties", {}).get("enabledForDeployment"):
        return Check(
            subject,
            WRONG,
            "it is not enabled for deployment, so virtual machines cannot read it",
            f"enable it: `az keyvault update --name {name} --enabled-for-deployment true`",
        )
    return placed


def _network(arm: Arm, settings: Settings, subject: str, name: str) -> list[Check]:
    if group := settings.network.resource_group:
        single = arm.get(f"{arm.root}/resourceGroups/{group}/{_NETWORKS}/{name}", _NETWORKS_API)
        found = [single] if single else []
    else:
        networks = arm.listed(f"{arm.root}/{_NETWORKS}", _NETWORKS_API)
        found = [network for network in networks if str(network["name"]).lower() == name.lower()]
    if len(found) > 1:
        return [
            Check(
                subject,
                WRONG,
                f"{len(found)} networks have this name",
                "set targets.azure.network.resource_group and subnet",
            )
        ]
    placed = _placed(subject, found[0] if found else None, settings.location)
    if placed.verdict != OK:
        return [placed]
    names = [subnet["name"] for subnet in found[0].get("properties", {}).get("subnets", [])]
    return [placed, _subnet(settings.network.subnet, names)]


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
