"""BuildPlan: everything that was decided for one target, in three parts.

`image` is the content of the image and alone decides its identity, `build` is how it is made, and `settings` are the
config's settings of the target: the builder, and where the image goes. None of them holds a secret or a fact of a run
(time, commit, run id).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from imagegen.base.canonical import digest
from imagegen.fetch.request import place_of

if TYPE_CHECKING:
    from pydantic import JsonValue

    from imagegen.providers.settings import TargetSettings
    from imagegen.steps.effects import Effect

# Each line is a reason to rebuild all older images: the lines salt every identity. Never edit a line; append new ones.
ERRATA: tuple[str, ...] = ()

# The time that Packer and the cloud need to create and capture the machine.
_CREATE_S, _CAPTURE_S = 3600, 2 * 3600
_AROUND_PHASES_S = _CREATE_S + _CAPTURE_S

S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)


@dataclasses.dataclass(frozen=True)
class PlannedResource:
    """One resource with its final fields."""

    id: str
    kind: str
    fields: dict[str, object]
    until: str | None = None
    """`first-boot` if a node may change it after its first boot."""
    effects: tuple[Effect, ...] = ()
    """What must be so after its script ran."""

    @property
    def downloaded(self) -> dict[str, str]:
        """The sha256 of each file that it takes from its artifact, by the path on the disk. A package has none: Windows
        registers it."""
        fields: dict[str, Any] = self.fields
        if self.kind == "archive":
            return {f"{fields['into']}\\{member['path']}": member["sha256"] for member in fields["members"]}
        return {fields["path"]: fields["sha256"]} if self.kind == "file" and fields.get("artifact") else {}


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """The resources of a step in one phase. If `repeated`, a later round has the same resources."""

    name: str
    repeated: bool
    resources: tuple[PlannedResource, ...]


@dataclasses.dataclass(frozen=True)
class Phase:
    """The steps between two restarts. If `restart`, a restart follows."""

    name: str
    restart: bool
    steps: tuple[PlannedStep, ...]

    def resources(self) -> list[PlannedResource]:
        return [resource for step in self.steps for resource in step.resources]


@dataclasses.dataclass(frozen=True)
class PlannedArtifact:
    """The bytes of an artifact, whatever URL they come from."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class ImagePart:
    """The content of the image. Nothing else changes its identity. It names the provider and not the target: targets
    with the same settings have the same image."""

    provider: str
    windows: dict[str, object]
    base: Mapping[str, str]
    versions: Mapping[str, str]
    phases: tuple[Phase, ...]
    artifacts: Mapping[str, PlannedArtifact]
    files: Mapping[str, str]
    scripts: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        """The part as JSON. The provider's key is `target`, because the first identities were made with it."""
        return _with_provider_as_target(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class PlannedSignature:
    """The signature by which the host accepted a file: the subjects and the sha256 of its certificate and its root, and
    of the root of its timestamp, if it has one."""

    signer: str
    thumbprint: str
    root: str
    root_thumbprint: str
    timestamp_root: str | None = None
    timestamp_root_thumbprint: str | None = None
    hidden: str | None = None
    """Why Windows does not show it on the machine: `nested` or `catalogue`."""


def _with_provider_as_target(parts: dict[str, object]) -> dict[str, object]:
    return {"target": parts.pop("provider"), **parts}


@dataclasses.dataclass(frozen=True)
class StepNotes:
    """The summary and the timeout of a step. Neither is part of the image."""

    summary: str
    timeout_s: int


@dataclasses.dataclass(frozen=True)
class BuildPart:
    """How the image is made: names, machine, network, timeouts and download URLs.

    `stated` holds settings for the cluster and the policy, which are recorded only. `proxy` is the proxy of the
    builder's downloads.
    """

    name: str
    target: str
    base_place: Mapping[str, str]
    downloads: Mapping[str, str]
    steps: Mapping[str, StepNotes]
    phase_timeouts_s: Mapping[str, int]
    timeouts_min: Mapping[str, int]
    stated: Mapping[str, JsonValue]
    proxy: dict[str, object] | None = None
    registry_credentials: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """For each registry the names of the environment variables with its credentials."""
    download_credentials: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """For each host with private artifacts the way to sign in: names of environment variables, or of a cloud."""
    signatures: Mapping[str, PlannedSignature] = dataclasses.field(default_factory=dict)
    """The signatures of the files that the machine gets, by the sha256 of the file. Not part of the image, because a
    signature is a part of the file's own bytes."""
    unsigned: tuple[str, ...] = ()
    """The sha256 of files of downloads that need no signature, if others need one. Empty if none needs one."""
    all_signed: bool = False
    """Whether PowerShell runs only signed scripts on the machine."""

    @property
    def private_downloads(self) -> dict[str, str]:
        """The URLs of the artifacts that need credentials, by their names."""
        return {name: url for name, url in self.downloads.items() if place_of(url, self.download_credentials)}

    @property
    def longest_s(self) -> int:
        """How long Packer may take: the timeouts of all phases and waits, and the time around them."""
        # A restart follows each phase but the last.
        restarts_min = self.timeouts_min["restart"] * (len(self.phase_timeouts_s) - 1)
        waits_min = self.timeouts_min["winrm"] + restarts_min + self.timeouts_min["generalise"]
        return _AROUND_PHASES_S + sum(self.phase_timeouts_s.values()) + 60 * waits_min


@dataclasses.dataclass(frozen=True)
class BuildPlan(Generic[S]):
    """Everything that was decided for one target. `settings` are the target's own: the builder, and the publishing."""

    image: ImagePart
    build: BuildPart
    settings: S
    publish_timeout_min: int
    """How long publishing may wait for each copy or replication."""
    release_record: str = ""
    """The sha256 of the release record. It has the identity, so it is in no part of the plan. Empty if the plan has no
    such file."""

    @property
    def image_id(self) -> str:
        """The identity: the sha256 of the canonical image part, salted with the errata."""
        # As `as_json`, without its copies: each folder and message has the identity.
        return digest({"errata": list(ERRATA), "image": _with_provider_as_target(dict(vars(self.image)))})

    @property
    def downloading_phases(self) -> tuple[str, ...]:
        """The phases that may download private artifacts: from the first that has one on, because a phase also sets
        what is no longer as an earlier phase left it."""
        private, phases = self.build.private_downloads.keys(), self.image.phases
        have = [any(item.fields.get("artifact") in private for item in phase.resources()) for phase in phases]
        return tuple(phase.name for phase in phases[have.index(True) :]) if any(have) else ()

    @property
    def downloads_s(self) -> int:
        """How long after its start a build may download private artifacts: until its last phase has ended."""
        after_s = 60 * self.build.timeouts_min["generalise"] + _CAPTURE_S
        return self.build.longest_s - after_s

    @property
    def publish_timeout_s(self) -> float:
        return 60.0 * self.publish_timeout_min

    @property
    def short_id(self) -> str:
        """The start of the identity, for folder names and messages."""
        return self.image_id[:16]

    def as_json(self) -> dict[str, object]:
        return {
            "image_id": self.image_id,
            "image": self.image.as_json(),
            "build": {**dataclasses.asdict(self.build), "settings": self.settings.build_json()},
            "publish": {"settings": self.settings.publish_json(), "timeout_min": self.publish_timeout_min},
        }
