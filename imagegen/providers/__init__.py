"""The clouds, with one folder each (see `imagegen.providers.registry`), and the values that all of them exchange."""

import dataclasses
import json
from collections.abc import Mapping

from imagegen.base.errors import ImagegenError


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The facts of one run that a provider may use. None of them is rendered into the build folder."""

    environ: Mapping[str, str]
    labels: Mapping[str, str]
    started: str
    """The start time, RFC 3339 in UTC."""
    id: str = ""
    """A tag on everything that the run creates; sorts by time. Empty for commands that do not build."""
    expires_at: str = ""
    """After this time the temporary resources of the run count as leftovers, RFC 3339 in UTC."""

    @property
    def variables(self) -> dict[str, str]:
        """The facts that become tags, as Packer variables."""
        return {
            "created": self.started,
            "run_id": self.id,
            "expires_at": self.expires_at,
            "labels": json.dumps(dict(self.labels), sort_keys=True),
        }


@dataclasses.dataclass(frozen=True)
class CloudImage:
    """An image in a cloud."""

    id: str
    region: str
    name: str
    state: str
    """`available`, `pending` or another state in the cloud's own word."""
    report: str = ""
    """The value of its report tag: `accepted` or `rejected`; empty where no run has judged the machine's report."""
    runs: str = ""
    """The value of its run tag: the run that built it, and runs that waited for it (`tags.run_ids`)."""


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """The existing image of a plan. `unusable` describes the failed and rejected images, and how to delete each."""

    image: CloudImage | None
    unusable: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Published:
    """The published copies of an image, and its version."""

    images: tuple[CloudImage, ...]
    version: str
    made: int
    """How many copies this run created; 0 where all copies existed."""


@dataclasses.dataclass(frozen=True)
class Leftover:
    """A temporary resource of a build, recognised by its tags or by the resource to which it belongs."""

    kind: str
    id: str
    region: str
    name: str
    state: str
    run_id: str
    """The run that owns it. The tag of an image for which several runs wait names all of them (`tags.run_ids`)."""
    expires_at: str
    image_id: str
    """The identity of the image that the build was for."""


@dataclasses.dataclass(frozen=True)
class Remains:
    """The leftovers in a place. `faults` are the errors of lists that could not be read, so there may be more."""

    leftovers: tuple[Leftover, ...]
    faults: tuple[ImagegenError, ...] = ()
    is_answered: bool = True
    """False where the cloud cannot be reached or rejects the credentials, so that further requests are useless."""
