"""BuildPlan: everything that was decided for one target, in three parts.

`image` is what is on the image, and alone decides its identity; `build` is how it is made; `settings` are what the
config says of the target: on which machine it is made, and where the image goes. No fact of a run (time, commit, run
id) and no secret is in any of them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from imagegen.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.providers.settings import TargetSettings

# Each line is a reason to rebuild images that were made before it: it salts every identity. Never edit one; append.
ERRATA: tuple[str, ...] = ()

# What Packer and the cloud need around the phases: creating a machine, generalising, capturing.
_AROUND_PHASES_S = 3 * 3600

JsonObject = dict[str, Any]
S = TypeVar("S", bound="TargetSettings", default="TargetSettings", covariant=True)


@dataclasses.dataclass(frozen=True)
class PlannedResource:
    """One resource with its final fields."""

    id: str
    kind: str
    fields: JsonObject


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """What a step puts on the machine in one phase; `repeated` says that a later round holds the same resources."""

    name: str
    repeated: bool
    resources: tuple[PlannedResource, ...]


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps between two restarts; `restart` says that one follows."""

    name: str
    restart: bool
    steps: tuple[PlannedStep, ...]

    def resources(self) -> Iterator[PlannedResource]:
        for step in self.steps:
            yield from step.resources


@dataclasses.dataclass(frozen=True)
class PlannedArtifact:
    """Bytes that the image is made of, wherever they are fetched from."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class ImagePart:
    """What is on the image: nothing else can change its identity. It says its cloud and not its target's name: targets
    with the same settings have the same image."""

    provider: str
    windows: JsonObject
    base: Mapping[str, str]
    versions: Mapping[str, str]
    phases: tuple[Phase, ...]
    artifacts: Mapping[str, PlannedArtifact]
    files: Mapping[str, str]
    scripts: Mapping[str, str]

    def as_json(self) -> dict[str, object]:
        """`target` is what the provider's name was called when the first identities were made of it."""
        parts = dataclasses.asdict(self)
        return {"target": parts.pop("provider"), **parts}


@dataclasses.dataclass(frozen=True)
class StepNotes:
    """What is said of a step and how long it may take: neither is on the image."""

    summary: str
    timeout_s: int


@dataclasses.dataclass(frozen=True)
class BuildPart:
    """How the image is made: names, machine, network, times, and where downloads come from.

    `stated` is what the config says of the cluster and of its own policy: it is on no machine, and is recorded.
    `proxy` is what the builder downloads through.
    """

    name: str
    target: str
    base_place: Mapping[str, str]
    downloads: Mapping[str, str]
    steps: Mapping[str, StepNotes]
    phase_timeouts_s: Mapping[str, int]
    timeouts_min: Mapping[str, int]
    stated: JsonObject
    proxy: JsonObject | None = None

    @property
    def longest_s(self) -> int:
        """How long Packer may take: every phase and wait to its limit, and what is around them."""
        # A restart follows each phase but the last.
        restarts_min = self.timeouts_min["restart"] * (len(self.phase_timeouts_s) - 1)
        waits_min = self.timeouts_min["winrm"] + restarts_min + self.timeouts_min["generalise"]
        return _AROUND_PHASES_S + sum(self.phase_timeouts_s.values()) + 60 * waits_min


@dataclasses.dataclass(frozen=True)
class BuildPlan(Generic[S]):
    """The whole decision for one target. `settings` say on which machine it is made, and where the image goes."""

    image: ImagePart
    build: BuildPart
    settings: S

    @property
    def image_id(self) -> str:
        """The identity: sha256 of the canonical image part, salted by the errata."""
        return digest({"errata": list(ERRATA), "image": self.image.as_json()})

    @property
    def short_id(self) -> str:
        """Enough of the identity for folder names and people."""
        return self.image_id[:16]

    def as_json(self) -> dict[str, object]:
        return {
            "image_id": self.image_id,
            "image": self.image.as_json(),
            "build": {**dataclasses.asdict(self.build), "settings": self.settings.build_json()},
            "publish": {"settings": self.settings.publish_json()},
        }
