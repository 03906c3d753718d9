"""One image definition of a Compute Gallery: where it is, its versions, and whether it can hold a plan's image."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TYPE_CHECKING, Final, TypedDict

from imagegen.errors import RefusedError
from imagegen.providers.azure.failures import explained
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

    from imagegen.providers.azure.settings import Settings

_LARGEST_NUMBER: Final = 2**31 - 1
_VERSION: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\Z")
_STANDARD: Final = "Standard"
# Azure takes a definition that does not say it for the first generation.
_FIRST: Final = "V1"
# The security types of a definition that take the image of a builder of this security type; Azure ignores their case.
_TAKES: Final = {
    _STANDARD: frozenset(
        {"standard", "trustedlaunchsupported", "confidentialvmsupported", "trustedlaunchandconfidentialvmsupported"}
    ),
    "TrustedLaunch": frozenset({"trustedlaunch", "trustedlaunchsupported", "trustedlaunchandconfidentialvmsupported"}),
    "ConfidentialVM": frozenset(
        {"confidentialvm", "confidentialvmsupported", "trustedlaunchandconfidentialvmsupported"}
    ),
}


@dataclasses.dataclass(frozen=True)
class Definition:
    """Where a plan's versions lie."""

    resource_group: str
    gallery: str
    name: str

    def __str__(self) -> str:
        return f"{self.gallery}/{self.name}"

    @property
    def missing(self) -> str:
        """What to do when Azure does not find it."""
        return (
            f"the gallery {self.gallery} in resource group {self.resource_group} and its image definition {self.name} "
            "must exist: create them, or correct targets.azure.gallery in the config"
        )

    def versions(self, client: ComputeManagementClient) -> list[GalleryImageVersion]:
        """Every version, without its replication."""
        with explained(f"listing the versions of {self}", RefusedError, missing=self.missing):
            pages = client.gallery_image_versions.list_by_gallery_image(self.resource_group, self.gallery, self.name)
            return list(pages)

    def version(self, client: ComputeManagementClient, name: str) -> GalleryImageVersion:
        """One version, with how far its replication is; errors are the SDK's."""
        return client.gallery_image_versions.get(
            self.resource_group, self.gallery, self.name, name, expand="ReplicationStatus"
        )

    def deletion(self, version: str) -> str:
        """The command that deletes one version."""
        return (
            f"az sig image-version delete --resource-group {self.resource_group} --gallery-name {self.gallery} "
            f"--gallery-image-definition {self.name} --gallery-image-version {version}"
        )


class _Feature(TypedDict):
    name: str
    value: str


class Properties(TypedDict, total=False):
    """What the Resource Manager tells of a definition."""

    osType: str
    osState: str
    architecture: str
    hyperVGeneration: str
    features: list[_Feature]


def definition_of(settings: Settings) -> Definition:
    """The definition that a config names."""
    gallery = settings.gallery
    return Definition(gallery.resource_group, gallery.name, gallery.definition)


def check_definition(definition: Definition, found: Properties, generation: int, security_type: str) -> Iterator[Check]:
    """Whether a definition, as the Resource Manager tells its properties, can hold the image of such a builder.

    Azure itself says so only after the build, at the capture.
    """
    subject = f"image definition {definition}"
    security = _security_type(found)
    checks = [*_wrong_kind(subject, found, generation), *_wrong_security(subject, security, security_type)]
    kind = f"{found.get('osType')}, {found.get('osState')}, {found.get('hyperVGeneration') or _FIRST}, {security}"
    yield from checks or [Check(subject, OK, kind)]


def _wrong_kind(subject: str, found: Properties, generation: int) -> Iterator[Check]:
    another = "name another definition in targets.azure.gallery.definition, or create one"
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
    for what, is_now, wanted, hint in kinds:
        if is_now.lower() != wanted.lower():
            yield Check(subject, WRONG, f"its {what} is {is_now}, and the image's is {wanted}", hint)


def _wrong_security(subject: str, found: str, asked: str) -> Iterator[Check]:
    if found.lower() not in _TAKES[asked]:
        feature = f"with --features SecurityType={asked}" if asked != _STANDARD else "without a SecurityType"
        yield Check(
            subject,
            WRONG,
            f"its security type is {found}, and targets.azure.security_type is {asked}",
            f"create a definition {feature}, or set targets.azure.security_type to what this one is for",
        )
    elif found.lower().endswith("supported"):
        # Seen in 2023 and 2024 (packer-plugin-azure#304, microsoft/STL#4682); not known to hold for ever.
        message = f"its security type is {found}, for which Azure has rejected images captured from a virtual machine"
        kind = "without a SecurityType" if asked == _STANDARD else f"with --features SecurityType={asked}"
        yield Check(subject, UNKNOWN, message, f"if the capture fails, create a definition {kind}")


def _security_type(found: Properties) -> str:
    features = {str(feature.get("name")).lower(): feature.get("value") for feature in found.get("features") or []}
    return features.get("securitytype") or _STANDARD


def state_word(value: object) -> str:
    """A word of Azure's. The SDK's enumerations are texts whose str() is their Python name."""
    return str(value.value if isinstance(value, enum.Enum) else value or "")


def is_version_name(text: str) -> bool:
    """Whether a gallery takes it for a version: three integers, each of 32 bits."""
    match = _VERSION.match(text)
    return match is not None and max(map(int, match.groups())) <= _LARGEST_NUMBER
