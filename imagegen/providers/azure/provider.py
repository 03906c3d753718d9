"""The provider Azure: see `imagegen.providers.provider.Provider`."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import BuildError, ImagegenError, PublishError, RefusedError
from imagegen.build.tools import NeededPlugin, Pin
from imagegen.fetch.lock import LockedBase
from imagegen.providers import CloudImage, Leftover, Published, Remains, RunFacts, SearchResult
from imagegen.providers.azure import checks, gallery, source, tags
from imagegen.providers.azure import leftovers as remains
from imagegen.providers.azure import publish as publishing
from imagegen.providers.azure.client import (
    FEDERATED,
    SERVICE_PRINCIPAL,
    compute,
    credential_for,
    resource_manager,
    subscription_of,
)
from imagegen.providers.azure.failures import explain_errors
from imagegen.providers.azure.settings import Place, PlaceAuth, Settings
from imagegen.providers.provider import Provider
from imagegen.providers.time_limits import Clock, Deadline

if TYPE_CHECKING:
    from imagegen.base.console import Console
    from imagegen.plan.model import BuildPlan

    Plan = BuildPlan[Settings]

_SECRET: Final = "key_vault_secret"  # noqa: S105 - the name of a variable of the source template


def look_up_base(settings: Settings, request: Mapping[str, str], run: RunFacts) -> LockedBase:
    """The newest base image that matches the request."""
    with explain_errors("looking up the base image", RefusedError), compute(run.environ, settings.auth) as client:
        return source.look_up_base(client, request)


def secret_variables(settings: Settings) -> frozenset[str]:
    """The variables of the client secret, if the config names one, and of a managed identity."""
    # With IDENTITY_HEADER, App Service and similar services grant tokens of a managed identity.
    return frozenset(filter(None, ("IDENTITY_HEADER", settings.auth.client_secret_env)))


def find_built(plan: Plan, run: RunFacts) -> SearchResult:
    """The highest gallery version of this plan with these labels."""
    with explain_errors("looking for built images", RefusedError), compute(run.environ, plan.settings.auth) as client:
        return gallery.find_built(client, plan, run)


def read_built(plan: Plan, artifact: str, run: RunFacts) -> CloudImage | None:
    """The gallery version in Packer's artifact."""
    with explain_errors("reading the built image", PublishError), compute(run.environ, plan.settings.auth) as client:
        return gallery.read_built(client, plan, artifact, Clock())


def mark(plan: Plan, image: CloudImage, report: str, run: RunFacts) -> None:
    """Tag the gallery version."""
    with explain_errors(f"tagging {image.name}", PublishError), compute(run.environ, plan.settings.auth) as client:
        gallery.mark(client, plan, image, report, Clock())


def build_variables(plan: Plan, run: RunFacts) -> dict[str, str]:
    """The gallery version to build, which does not exist yet."""
    with explain_errors("choosing the version", RefusedError), compute(run.environ, plan.settings.auth) as client:
        version = gallery.next_version(client, plan, run, secrets.randbelow(gallery.PER_SECOND))
    # The secret's name is unique, because a deleted secret blocks its name for weeks.
    return {
        "gallery_image_version": version,
        **({_SECRET: f"imagegen-{run.id}"} if plan.settings.key_vault else {}),
    }


def clean_up(plan: Plan, variables: Mapping[str, str], run: RunFacts, console: Console) -> None:
    """Delete the builder's certificate from the operator's own key vault."""
    name, auth = plan.settings.key_vault, plan.settings.auth
    if not name:
        return
    secret = variables[_SECRET]
    try:
        with (
            explain_errors(f"deleting the builder's certificate from the key vault {name}", BuildError),
            credential_for(run.environ, auth) as credential,
        ):
            remains.delete_secret(credential, name, secret)
    except ImagegenError as error:
        # A warning, so that the exit code is that of the build.
        console.warn(f"{error.message}; run `az keyvault secret delete --vault-name {name} --name {secret}`")


def place(settings: Settings, run: RunFacts) -> Place:
    """The subscription, the gallery, and the operator's own resource group and key vault, if any."""
    return Place(
        auth=PlaceAuth(**settings.auth.model_dump() | {"subscription_id": subscription_of(run.environ, settings.auth)}),
        location=settings.location,
        build_resource_group=settings.build_resource_group,
        key_vault=settings.key_vault,
        resource_group=settings.gallery.resource_group,
        gallery=settings.gallery.name,
        definition=settings.gallery.definition,
    )


def claim(plan: Plan, run: RunFacts) -> str:
    """The gallery version, where the config decides it.

    A version appears in the gallery only at the capture, and cannot be reserved before that (a definition accepts no
    If-Match). So builds on other machines are not detected.
    """
    fixed = gallery.fixed_version(plan.settings, plan.image.versions["kubernetes"])
    if fixed is None:
        return ""
    path = [subscription_of(run.environ, plan.settings.auth), *gallery.definition_of(plan.settings)]
    # Azure ignores case in names.
    return f"version {fixed} of {'/'.join(path).lower()}"


def leftovers(place: Place, run: RunFacts, deadline: Deadline | None) -> Remains:
    """The temporary resources of builds in the subscription."""
    auth = place.auth
    with compute(run.environ, auth, deadline) as client, resource_manager(run.environ, auth, deadline) as arm:
        return remains.find(arm, client, place)


def usual_leftovers(place: Place, run: RunFacts, deadline: Deadline | None) -> Remains:
    """Temporary key vaults, which Azure keeps after their deletion."""
    with resource_manager(run.environ, place.auth, deadline) as arm:
        return remains.find_deleted_vaults(arm)


def remove(place: Place, leftovers: Sequence[Leftover], run: RunFacts) -> Iterator[tuple[Leftover, str]]:
    """Remove machines first, then the resources that they used."""
    with (
        explain_errors("removing leftovers", PublishError),
        resource_manager(run.environ, place.auth) as arm,
        credential_for(run.environ, place.auth) as credential,
    ):
        yield from remains.remove(arm, leftovers, Clock(), functools.partial(remains.delete_secret, credential))


def publish(plan: Plan, built: CloudImage, run: RunFacts, console: Console) -> Published:
    """Replicate the version to the regions of the plan, and make it visible in `latest`."""
    with explain_errors("publishing", PublishError), compute(run.environ, plan.settings.auth) as client:
        return publishing.publish(client, plan, built, console, Clock())


PROVIDER: Final = Provider[Settings, Place](
    name="azure",
    # 1.4.5 is the newest with a Go module version: v2 did not change its module path.
    plugin=NeededPlugin("azure", source.LOWEST_PLUGIN, Pin("github.com/hashicorp/packer-plugin-azure", "v1.4.5", 82)),
    builder="azure-arm",
    # Without OperationNotAllowed, which has many causes besides quotas.
    no_capacity=frozenset(
        {
            "AllocationFailed",
            "OverconstrainedAllocationRequest",
            "OverconstrainedZonalAllocationRequest",
            "QuotaExceeded",
            "azureskunotavailable",
            "SkuNotAvailable",
            "ZonalAllocationFailed",
        }
    ),
    # Service principals with a secret, managed identities, and the settings of `az`.
    environment=frozenset(
        {
            *(f"{prefix}_{name}" for prefix in ("AZURE", "ARM") for name in SERVICE_PRINCIPAL),
            *("MSI_ENDPOINT", "MSI_SECRET", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "IMDS_ENDPOINT"),
            *("AZURE_CONFIG_DIR", "AZURE_EXTENSION_DIR", "AZURE_CLOUD_*", "AZURE_CORE_*"),
        }
    ),
    # Federated tokens, certificates and users, and what two CI systems make such tokens from.
    unused_credentials=frozenset({"AZURE_*", "ARM_*", *FEDERATED}),
    # The resource group, or every resource in the operator's own group.
    traces=r"\bpkr[-A-Za-z0-9]+",
    advice="The password of the machine is lost. To inspect it: `az vm run-command invoke --command-id "
    "RunPowerShellScript --resource-group GROUP --name VM --scripts …`.\n"
    "To remove it: `az group delete --name GROUP`, or in your own group every resource in this list.",
    base_form=source.BASE_FORM,
    place_model=Place,
    base_request=source.base_request,
    look_up_base=look_up_base,
    quick_checks=checks.quick_checks,
    thorough_checks=checks.thorough_checks,
    builder_sizes=lambda settings: settings.vm_sizes,
    image_tags=tags.image_tags,
    source_values=source.source_values,
    find_built=find_built,
    read_built=read_built,
    mark=mark,
    build_again=gallery.build_again,
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
