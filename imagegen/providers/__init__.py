"""The clouds: one folder each, named in `imagegen.providers.registry`; what a provider offers, and in which words."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Protocol, cast

from imagegen.providers.registry import part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.artifacts.lock import BaseForm, LockedBase
    from imagegen.console import Console
    from imagegen.errors import ImagegenError
    from imagegen.plan.model import BuildPlan
    from imagegen.providers.checks import Check
    from imagegen.providers.deadline import Deadline


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
        labels = json.dumps(dict(self.labels), sort_keys=True)
        return {"created": self.started, "run_id": self.id, "expires_at": self.expires_at, "labels": labels}


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


class Provider(Protocol):
    """What a provider module offers; each function's network calls use nothing but `run.environ`'s credentials."""

    PLUGIN: str
    """The Packer plugin's name."""
    PLUGIN_SINCE: str
    """The lowest version of the plugin that any plan can be built with."""
    NO_CAPACITY: frozenset[str]
    """The cloud's words for a size that cannot be had now: the next one is tried."""
    ENVIRONMENT: frozenset[str]
    """The environment variables of this cloud's credentials; one that ends in `*` names all that begin so."""
    TRACES: str
    """A regular expression for the names of what Packer makes in an account besides the image."""
    ADVICE: str
    """How to look into a builder that Packer did not remove, and how to remove it."""

    BASE_FORM: BaseForm
    """What a lock says of a base image."""

    def base_request(self, settings: Any, offered: Mapping[str, str]) -> dict[str, str]:  # noqa: ANN401 - each provider's own Settings
        """What to look up as base image, where `offered` is how the catalogue names the cloud's own; pure."""

    def look_up_base(self, settings: Any, request: Mapping[str, str], run: Run) -> LockedBase:  # noqa: ANN401 - as above
        """The newest image that the request describes."""

    def quick_checks(self, settings: Any, run: Run) -> list[Check]:  # noqa: ANN401 - as above
        """What is asked before every build, in a few requests and seconds: sign-in, regions, what must be there."""

    def thorough_checks(
        self,
        settings: Any,  # noqa: ANN401 - as above
        request: Mapping[str, str],
        versions: Mapping[str, str],
        run: Run,
    ) -> list[Check]:
        """What takes longer: the base image that the request describes, sizes and quotas, permissions, names."""

    def plugin_since(self, build: Mapping[str, Any], versions: int) -> str:
        """The lowest version of the plugin that has every attribute of such a build's tree; pure.

        `build` is as `build_settings` makes it, `versions` how many there are: each is a tag.
        """

    def builder_sizes(self, plan: BuildPlan) -> list[str]:
        """The builder's sizes in the order in which they are tried; pure."""

    def secret_variables(self, plan: BuildPlan) -> frozenset[str]:
        """The environment variables that hold secrets under names of the config's own; pure."""

    def build_settings(self, settings: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """What the source template needs, as plain JSON; pure."""

    def source_values(self, plan: BuildPlan) -> dict[str, Any]:
        """The values of the source template's own variable; pure."""

    def publish_settings(self, settings: Any) -> dict[str, Any]:  # noqa: ANN401 - as above
        """What publish needs, as plain JSON; pure."""

    def find_built(self, plan: BuildPlan, run: Run, console: Console) -> CloudImage | None:
        """The newest image with this plan's identity and the run's labels in the build region, by the cloud's tags.

        One whose report was rejected only where there is no other. Where there is none at all, the console is told of
        those that failed and are not used.
        """

    def mark(self, plan: BuildPlan, image: CloudImage, report: str, run: Run) -> None:
        """Tags an image of this plan with what became of its machine's report: `accepted` or `rejected`."""

    def build_variables(self, plan: BuildPlan, run: Run) -> dict[str, str]:
        """Facts of this run for Packer variables beyond the common ones; refuses what would overwrite something."""

    def clean_up(self, plan: BuildPlan, variables: Mapping[str, str], run: Run, console: Console) -> None:
        """Deletes what a build leaves behind however it ended, and what Packer does not delete; says what stays."""

    def place(self, build: Mapping[str, Any], publish: Mapping[str, Any], run: Run) -> dict[str, Any]:
        """Where builds with these settings leave things, whose that is, who may look there: plain JSON, no secret."""

    def claim(self, plan: BuildPlan, run: Run) -> str:
        """What only one build may make, in words that are the same for all; empty where two cannot collide; pure."""

    def is_place(self, place: Mapping[str, Any]) -> bool:
        """Whether this has the form of what `place` makes: a journal may be damaged, or another program's; pure."""

    def leftovers(
        self, place: Mapping[str, Any], run: Run, deadline: Deadline | None = None, *, usual: bool = True
    ) -> Remains:
        """What builds of imagegen, also running ones, have in this place; never an image that is finished.

        A list that the cloud refuses hides no other. What is not answered within the deadline is a fault.
        `usual`: also what every build leaves, however well it ended.
        """

    def remove(
        self, place: Mapping[str, Any], leftovers: Sequence[Leftover], run: Run
    ) -> Iterator[tuple[Leftover, str]]:
        """Removes each, in an order in which that works, and says why it could not; what is gone already is removed."""

    def publish(self, plan: BuildPlan, built: CloudImage, run: Run, console: Console) -> Published:
        """Makes the image usable where the plan says; looks for each thing before making it."""


def provider(target: str) -> Provider:
    """The provider's module, imported only now: a cloud that is not used costs nothing."""
    return cast("Provider", part(target, "provider"))
