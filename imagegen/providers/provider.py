"""What every cloud is asked: a record that each cloud's module `provider` fills in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar

from imagegen.providers.registry import part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pydantic

    from imagegen.artifacts.lock import BaseForm, LockedBase
    from imagegen.build.pins import NeededPlugin
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Found, Leftover, Published, Remains, Run
    from imagegen.providers.checks import Check
    from imagegen.providers.deadline import Deadline
    from imagegen.providers.settings import TargetSettings
    from imagegen.providers.tags import ImageTags
    from imagegen.settle.spec import Spec

S = TypeVar("S", bound="TargetSettings", default="TargetSettings")
P = TypeVar("P", bound="pydantic.BaseModel", default="pydantic.BaseModel")


@dataclasses.dataclass(frozen=True)
class BootFile:
    """A file of the tree that the cloud gives a machine at its first boot: a script, and what stands around it."""

    name: str
    before: bytes
    after: bytes


@dataclasses.dataclass(frozen=True)
class Provider(Generic[S, P]):
    """What a cloud answers. A network call uses nothing but the credentials in `run.environ`.

    What is None is a question that this cloud need not answer.
    """

    name: str
    plugin: NeededPlugin
    """The Packer plugin, at the lowest version that any plan can be built with."""
    builder: str
    """The plugin's builder, of which packer/<provider>/ has the source template."""
    no_capacity: frozenset[str]
    """The cloud's words for a size that cannot be had now: the next one is tried."""
    environment: frozenset[str]
    """The environment variables of this cloud's credentials; one that ends in `*` names all that begin so."""
    traces: str
    """A regular expression for the names of what Packer makes in an account besides the image."""
    advice: str
    """How to look into a builder that Packer did not remove, and how to remove it."""
    base_form: BaseForm
    """What a lock says of a base image."""
    place_model: type[P]
    """The form of what `place` answers: a journal may be damaged, or another program's."""

    base_request: Callable[[S, Mapping[str, str]], dict[str, str]]
    """What to look up as base image; the mapping is how the catalogue names the cloud's own. Pure."""
    look_up_base: Callable[[S, Mapping[str, str], Run], LockedBase]
    """The newest image that the request describes."""
    quick_checks: Callable[[S, Run], list[Check]]
    """What is asked before every build, in a few requests and seconds: sign-in, regions, what must be there."""
    thorough_checks: Callable[[Spec[S], Mapping[str, str], Run], list[Check]]
    """What takes longer: the base image that the request describes, sizes and quotas, permissions, names."""
    builder_sizes: Callable[[S], Sequence[str]]
    """The builder's sizes in the order in which they are tried. Pure."""
    image_tags: Callable[[S, Mapping[str, str]], ImageTags]
    """The operator's own tags and those of the components' versions, within what the cloud takes. Pure."""
    source_values: Callable[[BuildPlan[S]], dict[str, object]]
    """The values of the source template's own variable. Pure."""
    find_built: Callable[[BuildPlan[S], Run], Found]
    """The newest image with this plan's identity and the run's labels in the build region, by the cloud's tags.

    One whose report was rejected only where there is no other.
    """
    read_built: Callable[[BuildPlan[S], str, Run], CloudImage | None]
    """The image whose id is in Packer's artifact, as the cloud shows it; None where there is no id in it.

    An image that the cloud does not show yet is waited for: PublishError where that takes too long.
    """
    mark: Callable[[BuildPlan[S], CloudImage, str, Run], None]
    """Tags an image of this plan with what became of its machine's report: `accepted` or `rejected`."""
    publish: Callable[[BuildPlan[S], CloudImage, Run, Console], Published]
    """Makes the image usable where the plan says; looks for each thing before making it."""
    place: Callable[[S, Run], P]
    """Where builds with these settings leave things, whose that is, who may look there: JSON without secrets."""
    leftovers: Callable[[P, Run, Deadline | None], Remains]
    """What builds of imagegen, also running ones, have in this place; never an image that is finished.

    A list that the cloud refuses hides no other. What is not answered within the deadline is a fault.
    """
    remove: Callable[[P, Sequence[Leftover], Run], Iterator[tuple[Leftover, str]]]
    """Removes each, in an order in which that works, and says why it could not; what is gone already is removed."""

    boot_files: Mapping[str, BootFile] = dataclasses.field(default_factory=dict)
    """By the name of the script in packer/<provider>/; other scripts are in the tree as they are."""
    plugin_since: Callable[[S, Mapping[str, str]], str] | None = None
    """The lowest version of the plugin for such a build, with the components' versions as tags. Pure."""
    secret_variables: Callable[[S], frozenset[str]] | None = None
    """The environment variables that hold secrets under names of the config's own. Pure."""
    build_variables: Callable[[BuildPlan[S], Run], dict[str, str]] | None = None
    """Facts of this run for Packer variables beyond the common ones; refuses what would overwrite something."""
    clean_up: Callable[[BuildPlan[S], Mapping[str, str], Run, Console], None] | None = None
    """Deletes what a build leaves behind however it ended, and what Packer does not delete; says what stays."""
    claim: Callable[[BuildPlan[S], Run], str] | None = None
    """What only one build may make, in words that are the same for all; empty where two cannot collide. Pure."""
    usual_leftovers: Callable[[P, Run, Deadline | None], Remains] | None = None
    """What every build leaves in this place, however well it ended."""

    def plugin_for(self, settings: S, versions: Mapping[str, str]) -> NeededPlugin:
        """The plugin at the lowest version that has every attribute of such a build's tree. Pure."""
        if self.plugin_since is None:
            return self.plugin
        return dataclasses.replace(self.plugin, lowest=self.plugin_since(settings, versions))


def provider(name: str) -> Provider:
    """A provider, imported only now: a cloud that is not used costs nothing."""
    found: Provider = part(name, "provider").PROVIDER
    return found
