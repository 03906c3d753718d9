"""The clouds: one folder each, named in `imagegen.providers.registry`; the values that they take and answer."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.errors import ImagegenError


@dataclasses.dataclass(frozen=True)
class Run:
    """The facts of one run that a provider may use; none of them is rendered into a tree."""

    environ: Mapping[str, str]
    labels: Mapping[str, str]
    started: str
    """When the run began, RFC 3339 in UTC."""
    id: str = ""
    """Names the run on everything that it makes; sorts by time. Only what builds needs one."""
    expires_at: str = ""
    """When what it makes for itself is left over, RFC 3339 in UTC."""

    @property
    def variables(self) -> dict[str, str]:
        """The facts that become tags, as Packer takes them."""
        return {
            "created": self.started,
            "run_id": self.id,
            "expires_at": self.expires_at,
            "labels": json.dumps(dict(self.labels), sort_keys=True),
        }


@dataclasses.dataclass(frozen=True)
class CloudImage:
    """An image as a cloud has it."""

    id: str
    region: str
    name: str
    state: str
    """`available`, `pending` or the cloud's own word for anything else."""
    report: str = ""
    """`accepted` or `rejected`, as its tag says; empty where no run has said so of its machine's report."""


@dataclasses.dataclass(frozen=True)
class Found:
    """The image of a plan, if there is one; where there is none, `failed` says which have failed and are not used."""

    image: CloudImage | None
    failed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Published:
    """Where an image can be used from, and under which name and version."""

    images: tuple[CloudImage, ...]
    version: str
    made: int
    """How many copies this run made; 0 when everything was there."""


@dataclasses.dataclass(frozen=True)
class Leftover:
    """Something that a build made for itself, by the tags that it wears or by what it belongs to."""

    kind: str
    id: str
    region: str
    name: str
    state: str
    run_id: str
    """Whose it is; the tag of an image that several runs wait for names them all (`tags.run_ids`)."""
    expires_at: str
    image_id: str
    """The identity of the image that was to come of it."""


@dataclasses.dataclass(frozen=True)
class Remains:
    """What was found of builds in a place; `faults`: what could not be asked, so that more may be there."""

    leftovers: tuple[Leftover, ...]
    faults: tuple[ImagegenError, ...] = ()
    is_answered: bool = True
    """False where the cloud answers nobody, or not with these credentials: another question would be in vain."""
