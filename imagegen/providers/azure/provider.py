"""Azure's answers to what `imagegen.providers.provider.Provider` asks."""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING, Final

from imagegen.build.pins import NeededPlugin, Pin
from imagegen.errors import BuildError, ImagegenError, PublishError, RefusedError
from imagegen.providers.azure import base, checks, gallery, numbering, removal, source, tags, vault
from imagegen.providers.azure import leftovers as remains
from imagegen.providers.azure import publish as publishing
from imagegen.providers.azure.arm import resource_manager
from imagegen.providers.azure.client import compute, credential_for, subscription_id
from imagegen.providers.azure.definition import definition_of
from imagegen.providers.azure.failures import explained
from imagegen.providers.azure.place import Place, PlaceAuth
from imagegen.providers.azure.settings import Settings
from imagegen.providers.provider import Provider
from imagegen.providers.waiting import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from imagegen.artifacts.lock import LockedBase
    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Found, Leftover, Published, Remains, Run
    from imagegen.providers.deadline import Deadline

    Plan = BuildPlan[Settings]

# By which App Service and its like let a program ask for its identity's tokens.
_IDENTITY_VARIABLE: Final = "IDENTITY_HEADER"
# OperationNotAllowed is not among them: quotas are one of its many reasons, and a machine in the wrong state another.
_NO_CAPACITY: Final = frozenset(
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
_ENVIRONMENT: Final = frozenset(
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
_TRACES: Final = r"\bpkr[-A-Za-z0-9]+"
_ADVICE: Final = (
    "The machine's password is lost. To look into it: `az vm run-command invoke --command-id RunPowerShellScript "
    "--resource-group GROUP --name VM --scripts …`.\n"
    "To remove it: `az group delete --name GROUP`, or in a group of your own every resource that is named here."
)

_SECRET: Final = "key_vault_secret"  # noqa: S105 - the name of a variable of the source template


def look_up_base(settings: Settings, request: Mapping[str, str], run: Run) -> LockedBase:
    """The newest image that the request describes."""
    with explained("looking up the base image", RefusedError), compute(run.environ, settings.auth) as client:
        return base.look_up_base(client, request)


def secret_variables(settings: Settings) -> frozenset[str]:
    """The client secret's, where the config gives it a name of its own, and a managed identity's."""
    named = settings.auth.client_secret_env
    return frozenset([_IDENTITY_VARIABLE, *([named] if named else [])])


def find_built(plan: Plan, run: Run) -> Found:
    """The highest gallery version of this plan and these labels."""
    with explained("looking for built images", RefusedError), compute(run.environ, plan.settings.auth) as client:
        return gallery.find_built(client, plan, run)


def read_built(plan: Plan, artifact: str, run: Run) -> CloudImage | None:
    """The gallery version."""
    with explained("reading the built image", PublishError), compute(run.environ, plan.settings.auth) as client:
        return gallery.read_built(client, plan, artifact, Clock())


def mark(plan: Plan, image: CloudImage, report: str, run: Run) -> None:
    """A tag of the gallery version."""
    with explained(f"tagging {image.name}", PublishError), compute(run.environ, plan.settings.auth) as client:
        gallery.mark(client, plan, image, report, Clock())


def build_variables(plan: Plan, run: Run) -> dict[str, str]:
    """The gallery version to build, which is free at this moment."""
    chance = secrets.randbelow(numbering.PER_SECOND)
    with explained("numbering the image", RefusedError), compute(run.environ, plan.settings.auth) as client:
        variables = {"gallery_image_version": numbering.next_version(client, plan, run, chance)}
    return variables | ({_SECRET: vault.secret_name(run.id)} if plan.settings.key_vault else {})


def clean_up(plan: Plan, variables: Mapping[str, str], run: Run, console: Console) -> None:
    """The builder's certificate goes from a key vault of one's own."""
    name, auth = plan.settings.key_vault, plan.settings.auth
    if not name:
        return
    secret = variables[_SECRET]
    doing = f"deleting the builder's certificate from the key vault {name}"
    try:
        subscription = auth.subscription_id or subscription_id(run.environ)
        with explained(doing, BuildError), credential_for(run.environ, auth, subscription) as credential:
            vault.delete_secret(credential, name, secret)
    except ImagegenError as error:
        # The build's own outcome is what counts.
        command = f"az keyvault secret delete --vault-name {name} --name {secret}"
        console.warn(f"{error.message}; delete it yourself: `{command}`")


def place(settings: Settings, run: Run) -> Place:
    """The subscription, the group to build in and the key vault, where there are any, and the gallery."""
    definition = definition_of(settings)
    subscription = settings.auth.subscription_id or subscription_id(run.environ)
    return Place(
        auth=PlaceAuth(**settings.auth.model_dump() | {"subscription_id": subscription}),
        location=settings.location,
        build_resource_group=settings.build_resource_group,
        key_vault=settings.key_vault,
        resource_group=definition.resource_group,
        gallery=definition.gallery,
        definition=definition.name,
    )


def claim(plan: Plan, run: Run) -> str:
    """The gallery version of a fixed number.

    A gallery has no version before the capture, and a definition takes no condition (If-Match) by which a number could
    be reserved: other machines' builds are not seen.
    """
    fixed = numbering.fixed_version(plan)
    if fixed is None:
        return ""
    definition = definition_of(plan.settings)
    subscription = plan.settings.auth.subscription_id or subscription_id(run.environ)
    # Azure's names are the same in any case.
    return f"version {fixed} of {f'{subscription}/{definition.resource_group}/{definition}'.lower()}"


def leftovers(place: Place, run: Run, deadline: Deadline | None) -> Remains:
    """What builds have in the subscription."""
    auth = place.auth
    with compute(run.environ, auth, deadline) as client, resource_manager(run.environ, auth, deadline) as arm:
        return remains.find(arm, client, place)


def usual_leftovers(place: Place, run: Run, deadline: Deadline | None) -> Remains:
    """A key vault that Azure keeps after its deletion."""
    with resource_manager(run.environ, place.auth, deadline) as arm:
        return remains.find_deleted_vaults(arm)


def remove(place: Place, leftovers: Sequence[Leftover], run: Run) -> Iterator[tuple[Leftover, str]]:
    """Machines first, then what they used."""
    with (
        explained("removing leftovers", PublishError),
        resource_manager(run.environ, place.auth) as arm,
        credential_for(run.environ, place.auth, arm.subscription) as credential,
    ):
        yield from removal.remove(arm, leftovers, Clock(), functools.partial(vault.delete_secret, credential))


def publish(plan: Plan, built: CloudImage, run: Run, console: Console) -> Published:
    """Replicas in the plan's regions, and a place in `latest`."""
    with explained("publishing", PublishError), compute(run.environ, plan.settings.auth) as client:
        return publishing.publish(client, plan, built, console, Clock())


PROVIDER: Final = Provider[Settings, Place](
    name="azure",
    # 1.4.5 is the newest that has a Go module version: the v2 line did not change its module path.
    plugin=NeededPlugin(
        "azure", source.LOWEST_PLUGIN, Pin("github.com/hashicorp/packer-plugin-azure", "v1.4.5", 82, 0.9)
    ),
    builder="azure-arm",
    no_capacity=_NO_CAPACITY,
    environment=_ENVIRONMENT,
    traces=_TRACES,
    advice=_ADVICE,
    base_form=base.BASE_FORM,
    place_model=Place,
    base_request=base.base_request,
    look_up_base=look_up_base,
    quick_checks=checks.quick_checks,
    thorough_checks=checks.thorough_checks,
    builder_sizes=lambda settings: settings.vm_sizes,
    image_tags=tags.image_tags,
    source_values=source.source_values,
    find_built=find_built,
    read_built=read_built,
    mark=mark,
    publish=publish,
    place=place,
    leftovers=leftovers,
    remove=remove,
    plugin_since=source.plugin_since,
    secret_variables=secret_variables,
    build_variables=build_variables,
    clean_up=clean_up,
    claim=claim,
    usual_leftovers=usual_leftovers,
)
