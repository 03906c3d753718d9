"""The functions and facts of one cloud: the record that each cloud's module `provider` fills in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, cast

from typing_extensions import TypeVar

from imagegen.fetch.lock import BaseForm, LockedBase
from imagegen.providers import CloudImage, Leftover, Published, Remains, RunFacts, SearchResult
from imagegen.providers.checks import Check
from imagegen.providers.registry import part
from imagegen.providers.settings import TargetSettings
from imagegen.providers.tags import ImageTags
from imagegen.providers.time_limits import Deadline

if TYPE_CHECKING:
    import pydantic

    from imagegen.base.console import Console
    from imagegen.build.tools import NeededPlugin
    from imagegen.plan.model import BuildPlan
    from imagegen.settle.spec import Spec

S = TypeVar("S", bound="TargetSettings", default="TargetSettings")
P = TypeVar("P", bound="pydantic.BaseModel", default="pydantic.BaseModel")


@dataclasses.dataclass(frozen=True)
class BootFile:
    """A script that the cloud runs at the first boot of the builder, and the text that the cloud requires around it."""

    name: str
    before: bytes
    after: bytes


@dataclasses.dataclass(frozen=True)
class Provider(Generic[S, P]):
    """One cloud. Its network calls use no credentials but those in `run.environ`.

    A hook that is None does not apply to this cloud.
    """

    name: str
    plugin: NeededPlugin
    """The Packer plugin, with the lowest version that can build any plan."""
    builder: str
    """The builder of the plugin; packer/<provider>/ has its source template."""
    no_capacity: frozenset[str]
    """The error codes and texts that mean that a size is not available now, so that the next one is tried."""
    environment: frozenset[str]
    """The environment variables that Packer gets, with credentials that it uses; a final `*` matches any ending."""
    traces: str
    """A regular expression for the names of the temporary resources that Packer creates."""
    advice: str
    """How to inspect a builder that Packer did not remove, and how to remove it."""
    base_form: BaseForm
    """The keys of a base image in a lock."""
    place_model: type[P]
    """The model of the result of `place`: a journal may be damaged, or written by another program."""

    base_request: Callable[[S, Mapping[str, str]], dict[str, str]]
    """The base image to look up; the mapping names the cloud's own image in the catalogue. Pure."""
    look_up_base: Callable[[S, Mapping[str, str], RunFacts], LockedBase]
    """The newest base image that matches the request."""
    quick_checks: Callable[[S, RunFacts], list[Check]]
    """The checks before every build, in a few requests and seconds: sign-in, regions, required resources."""
    thorough_checks: Callable[[Spec[S], Mapping[str, str], RunFacts], list[Check]]
    """The slower checks: the base image of the request, sizes and quotas, permissions, names."""
    builder_sizes: Callable[[S], Sequence[str]]
    """The sizes of the builder in the order in which a build tries them. Pure."""
    image_tags: Callable[[S, Mapping[str, str]], ImageTags]
    """The operator's own tags and the versions of the components, within the limits of the cloud. Pure."""
    source_values: Callable[[BuildPlan[S]], dict[str, object]]
    """The values of the variable that the source template reads. Pure."""
    find_built: Callable[[BuildPlan[S], RunFacts], SearchResult]
    """The newest image with the plan's identity and the run's labels in the build region, found by its tags.

    An accepted image comes before one that nobody has judged. A rejected one is returned only where there is no other.
    """
    read_built: Callable[[BuildPlan[S], str, RunFacts], CloudImage | None]
    """The image whose id is in Packer's artifact; None where the artifact has no id.

    Waits for an image that the cloud does not show yet, and raises PublishError where that takes too long.
    """
    mark: Callable[[BuildPlan[S], CloudImage, str, RunFacts], None]
    """Tags an image of this plan with the verdict on its machine's report: `accepted` or `rejected`.

    Nobody can use a rejected image any more, if the cloud has a way to ensure that.
    """
    build_again: Callable[[BuildPlan[S], CloudImage], str]
    """The hint that says how to build this plan again although this image exists, and how to delete it. Pure."""
    publish: Callable[[BuildPlan[S], CloudImage, RunFacts, Console], Published]
    """Publishes the image as planned; existing copies are kept."""
    place: Callable[[S, RunFacts], P]
    """Where builds with these settings create resources, and how to sign in there: JSON without secrets."""
    leftovers: Callable[[P, RunFacts, Deadline | None], Remains]
    """The temporary resources of builds in this place, also of running builds; never a finished image.

    An error in one list does not hide the others. A list that is not answered within the deadline is a fault.
    """
    remove: Callable[[P, Sequence[Leftover], RunFacts], Iterator[tuple[Leftover, str]]]
    """Removes leftovers in the order of their dependencies, and yields the reason for each that remains, else empty."""

    unused_credentials: frozenset[str] = frozenset()
    """Other environment variables with credentials of this cloud. Packer does not use them, and does not get them."""
    boot_files: Mapping[str, BootFile] = dataclasses.field(default_factory=dict)
    """By the name of the script in packer/<provider>/; other scripts are copied unchanged."""
    plugin_since: Callable[[S, Mapping[str, str]], str] | None = None
    """The lowest version of the plugin for such a build, with the versions of components as tags. Pure."""
    secret_variables: Callable[[S], frozenset[str]] | None = None
    """The environment variables that hold secrets and whose names the config chooses. Pure."""
    build_variables: Callable[[BuildPlan[S], RunFacts], dict[str, str]] | None = None
    """Further Packer variables of this run; raises where the build would overwrite something."""
    clean_up: Callable[[BuildPlan[S], Mapping[str, str], RunFacts, Console], None] | None = None
    """Deletes resources that Packer does not delete, after every build; warns of those that remain."""
    claim: Callable[[BuildPlan[S], RunFacts], str] | None = None
    """The name of a resource that only one build may create; empty where two builds cannot collide. Pure."""
    usual_leftovers: Callable[[P, RunFacts, Deadline | None], Remains] | None = None
    """The resources that every build leaves in this place, even a successful one."""

    def plugin_for(self, settings: S, versions: Mapping[str, str]) -> NeededPlugin:
        """The plugin, with the lowest version that supports every attribute of such a build. Pure."""
        if self.plugin_since is None:
            return self.plugin
        return dataclasses.replace(self.plugin, lowest=self.plugin_since(settings, versions))


def provider(name: str) -> Provider:
    """Import a provider. Only the providers that are used are imported."""
    return cast("Provider", part(name, "provider").PROVIDER)
