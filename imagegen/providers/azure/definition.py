"""An image definition of a Compute Gallery: its place, its versions, and whether it fits a builder."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypedDict

from imagegen.errors import RefusedError
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import OK, UNKNOWN, WRONG, Check

if TYPE_CHECKING:
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.compute.models import GalleryImageVersion

_LARGEST_NUMBER: Final = 2**31 - 1
_VERSION: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\Z")
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


@dataclasses.dataclass(frozen=True)
class Definition:
    """The place of an image definition."""

    resource_group: str
    gallery: str
    name: str

    def __str__(self) -> str:
        return f"{self.gallery}/{self.name}"

    @property
    def missing(self) -> str:
        """The hint where it does not exist."""
        return (
            f"the gallery {self.gallery} in resource group {self.resource_group} and its image definition {self.name} "
            "must exist: create them, or correct targets.azure.gallery in the config"
        )

    def versions(self, client: ComputeManagementClient) -> list[GalleryImageVersion]:
        """All versions, without their replication status."""
        with explain_errors(f"listing the versions of {self}", RefusedError, missing=self.missing):
            return list(
                client.gallery_image_versions.list_by_gallery_image(self.resource_group, self.gallery, self.name)
            )

    def version(self, client: ComputeManagementClient, name: str) -> GalleryImageVersion:
        """One version with its replication status. Raises the errors of the SDK."""
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
    """The properties of a definition in the Resource Manager."""

    osType: str
    osState: str
    architecture: str
    hyperVGeneration: str
    features: list[_Feature]


def definition_of(settings: Settings) -> Definition:
    """The image definition of a target."""
    gallery = settings.gallery
    return Definition(gallery.resource_group, gallery.name, gallery.definition)


def check_definition(definition: Definition, found: Properties, generation: int, security_type: str) -> Iterator[Check]:
    """Check whether a definition with these properties accepts the image of such a builder.

    Azure itself reports that only after the build, at the capture.
    """
    subject = f"image definition {definition}"
    security = _security_type(found)
    checks = [*_wrong_kind(subject, found, generation), *_wrong_security(subject, security, security_type)]
    kind = f"{found.get('osType')}, {found.get('osState')}, {found.get('hyperVGeneration') or _FIRST}, {security}"
    yield from checks or [Check(subject, OK, kind)]


def _wrong_kind(subject: str, found: Properties, generation: int) -> Iterator[Check]:
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


def _security_type(found: Properties) -> str:
    features = {str(feature.get("name")).lower(): feature.get("value") for feature in found.get("features") or []}
    return features.get("securitytype") or _STANDARD


def state_word(value: object) -> str:
    """A state of Azure as text. str() of the SDK's enumerations would return the Python name."""
    return str(value.value if isinstance(value, enum.Enum) else value or "")


def is_version_name(text: str) -> bool:
    """Whether a gallery accepts the text as a version: three integers of 32 bits."""
    match = _VERSION.match(text)
    return match is not None and max(map(int, match.groups())) <= _LARGEST_NUMBER
