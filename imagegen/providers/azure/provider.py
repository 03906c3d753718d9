"""Azure as `imagegen.providers.Provider` wants it."""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING, Any, Final

import pydantic

from imagegen.errors import BuildError, ImagegenError, PublishError, RefusedError
from imagegen.providers.azure import base, checks, gallery, numbering, removal, source, vault
from imagegen.providers.azure import leftovers as remains
from imagegen.providers.azure import publish as publishing
from imagegen.providers.azure.arm import resource_manager
from imagegen.providers.azure.client import compute, credential_for, subscription_id
from imagegen.providers.azure.definition import definition_of
from imagegen.providers.azure.failures import explained
from imagegen.providers.azure.place import Place
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.artifacts.lock import LockedBase
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Leftover, Published, Remains, Run
    from imagegen.providers.azure.settings import Settings
    from imagegen.providers.checks import Check
    from imagegen.providers.deadline import Deadline

# By which App Service and its like let a program ask for its identity's tokens.
_IDENTITY_VARIABLE: Final = "IDENTITY_HEADER"
PLUGIN: Final = "azure"
PLUGIN_SINCE: Final = source.PLUGIN_SINCE
# OperationNotAllowed is not among them: quotas are one of its many reasons, and a machine in the wrong state another.
NO_CAPACITY: Final = frozenset(
    {
        "AllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "QuotaExceeded",
        "azureskunotavailable",
        "SkuNotAvailable",
        "ZonalAllocationFailed",
    }
)

# Service principals under both families of names, managed identities, and the tokens of two CI systems.
ENVIRONMENT: Final = frozenset(
    {
        "AZURE_*",
        "ARM_*",
        "MSI_ENDPOINT",
        "MSI_SECRET",
        "IDENTITY_ENDPOINT",
        "IDENTITY_HEADER",
        "IMDS_ENDPOINT",
        "ACTIONS_ID_TOKEN_REQUEST_URL",
        "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        "SYSTEM_ACCESSTOKEN",
        "SYSTEM_OIDCREQUESTURI",
    }
)
# The resource group, and in a group of the user's own every single resource.
TRACES: Final = r"\bpkr[-A-Za-z0-9]+"
ADVICE: Final = (
    "The machine's password is lost. To look into it: `az vm run-command invoke --command-id RunPowerShellScript "
    "--resource-group GROUP --name VM --scripts …`.\n"
    "To remove it: `az group delete --name GROUP`, or in a group of your own every resource that is named here."
)

_SECRET: Final = "key_vault_secret"  # noqa: S105 - the name of a variable of the source template

BASE_FORM: Final = base.BASE_FORM


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """What to look up as base image."""
    return base.base_request(settings, offered)


def look_up_base(settings: Settings, request: Mapping[str, str], run: Run) -> LockedBase:
    """The newest image that the request describes."""
    auth = settings.auth.model_dump(mode="json")
    with explained("looking up the base image", RefusedError), compute(run.environ, auth) as client:
        return base.look_up_base(client, request)


def quick_checks(settings: Settings, run: Run) -> list[Check]:
    """Sign-in, regions, the image definition."""
    return checks.quick_checks(settings, run)


def thorough_checks(
    settings: Settings, request: Mapping[str, str], versions: Mapping[str, str], run: Run
) -> list[Check]:
    """The base image, the version's number, sizes and quotas, what the config names, and permissions."""
    return checks.thorough_checks(settings, request, versions, run)


def build_settings(settings: Settings) -> dict[str, Any]:
    """What the source template and the client need."""
    return source.build_settings(settings)


def source_values(plan: BuildPlan) -> dict[str, Any]:
    """What was asked for, and the gallery version where the config alone decides it."""
    return source.source_values(plan.build.settings, numbering.fixed_version(plan) or "")


def plugin_since(build: Mapping[str, Any], versions: int) -> str:
    """The lowest plugin version that does what is asked for."""
    return source.plugin_since(build, versions)


def builder_sizes(plan: BuildPlan) -> list[str]:
    """The sizes to try, in order."""
    return list(plan.build.settings["vm_sizes"])


def secret_variables(plan: BuildPlan) -> frozenset[str]:
    """The client secret's, where the config gives it a name of its own, and a managed identity's."""
    named = _auth(plan)["client_secret_env"]
    return frozenset([_IDENTITY_VARIABLE, *([named] if named else [])])


def publish_settings(settings: Settings) -> dict[str, Any]:
    """What publish needs; the Kubernetes version of the `kubernetes` rule is the image's own."""
    return {
        "regions": list(settings.publish.regions),
        "replicas": settings.publish.replicas,
        "version": settings.gallery.version,
    }


def find_built(plan: BuildPlan, run: Run, console: Console) -> CloudImage | None:
    """The highest gallery version of this plan and these labels."""
    with explained("looking for built images", RefusedError), compute(run.environ, _auth(plan)) as client:
        return gallery.find_built(client, plan, run, console)


def mark(plan: BuildPlan, image: CloudImage, report: str, run: Run) -> None:
    """A tag of the gallery version."""
    with explained(f"tagging {image.name}", PublishError), compute(run.environ, _auth(plan)) as client:
        gallery.mark(client, plan, image, report, Clock())


def build_variables(plan: BuildPlan, run: Run) -> dict[str, str]:
    """The gallery version to build, which is free at this moment."""
    chance = secrets.randbelow(numbering.PER_SECOND)
    with explained("numbering the image", RefusedError), compute(run.environ, _auth(plan)) as client:
        variables = {"gallery_image_version": numbering.next_version(client, plan, run, chance)}
    return variables | ({_SECRET: vault.secret_name(run.id)} if plan.build.settings["key_vault"] else {})


def clean_up(plan: BuildPlan, variables: Mapping[str, str], run: Run, console: Console) -> None:
    """The builder's certificate goes from a key vault of one's own."""
    name = plan.build.settings["key_vault"]
    if not name:
        return
    secret, auth = variables[_SECRET], _auth(plan)
    doing = f"deleting the builder's certificate from the key vault {name}"
    try:
        subscription = auth["subscription_id"] or subscription_id(run.environ)
        with explained(doing, BuildError), credential_for(run.environ, auth, subscription) as credential:
            vault.delete_secret(credential, name, secret)
    except ImagegenError as error:
        # The build's own outcome is what counts.
        command = f"az keyvault secret delete --vault-name {name} --name {secret}"
        console.warn(f"{error.message}; delete it yourself: `{command}`")


def place(build: Mapping[str, Any], publish: Mapping[str, Any], run: Run) -> dict[str, Any]:  # noqa: ARG001 - the protocol's signature: replicas belong to their gallery
    """The subscription, the group to build in and the key vault, where there are any, and the gallery."""
    auth = {**build["auth"], "subscription_id": build["auth"]["subscription_id"] or subscription_id(run.environ)}
    names = ("location", "build_resource_group", "key_vault", "resource_group", "gallery", "definition")
    return {"auth": auth, **{name: build[name] for name in names}}


def claim(plan: BuildPlan, run: Run) -> str:
    """The gallery version of a fixed number.

    A gallery has no version before the capture, and a definition takes no condition (If-Match) by which a number could
    be reserved: other machines' builds are not seen.
    """
    fixed = numbering.fixed_version(plan)
    if fixed is None:
        return ""
    build = plan.build.settings
    names = (build["auth"]["subscription_id"] or subscription_id(run.environ), build["resource_group"])
    # Azure's names are the same in any case.
    return f"version {fixed} of {'/'.join((*names, str(definition_of(plan)))).lower()}"


def is_place(place: Mapping[str, Any]) -> bool:
    """Whether `place` made this, as far as its form says."""
    try:
        Place.model_validate(place)
    except pydantic.ValidationError:
        return False
    return True


def leftovers(place: Mapping[str, Any], run: Run, deadline: Deadline | None = None, *, usual: bool = True) -> Remains:
    """What builds have in the subscription; the usual is a key vault that Azure keeps after its deletion."""
    auth = place["auth"]
    with compute(run.environ, auth, deadline) as client, resource_manager(run.environ, auth, deadline) as arm:
        return remains.find(arm, client, place, deleted_vaults=usual)


def remove(place: Mapping[str, Any], leftovers: Sequence[Leftover], run: Run) -> Iterator[tuple[Leftover, str]]:
    """Machines first, then what they used."""
    auth = place["auth"]
    with (
        explained("removing leftovers", PublishError),
        resource_manager(run.environ, auth) as arm,
        credential_for(run.environ, auth, arm.subscription) as credential,
    ):
        yield from removal.remove(arm, leftovers, Clock(), functools.partial(vault.delete_secret, credential))


def publish(plan: BuildPlan, built: CloudImage, run: Run, console: Console) -> Published:
    """Replicas in the plan's regions, and a place in `latest`."""
    with explained("publishing", PublishError), compute(run.environ, _auth(plan)) as client:
        return publishing.publish(client, plan, built, console, Clock())


def _auth(plan: BuildPlan) -> dict[str, Any]:
    auth: dict[str, Any] = plan.build.settings["auth"]
    return auth
