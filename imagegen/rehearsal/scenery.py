"""A config in; what the clouds of its rehearsal hold from the start, so that what it names is there, out."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from imagegen import loading, pipeline
from imagegen.errors import RefusedError
from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure.settings import Settings as AzureSettings
from imagegen.rehearsal.network.aws.account import Limits
from imagegen.rehearsal.network.aws.edge import AwsOptions
from imagegen.rehearsal.network.aws.standing import Standing
from imagegen.rehearsal.network.aws.stock_images import DEFAULT_IMAGES, own_base
from imagegen.rehearsal.network.azure.options import AzureOptions, ExistingGroup, GalleryDefinition
from imagegen.rehearsal.network.azure.resources import REGIONS
from imagegen.rehearsal.network.machine import OPERATOR_ADDRESS
from imagegen.rehearsal.stage import Scene
from imagegen.rehearsal.supplies import make_supplies, unrecorded_releases

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from imagegen.errors import Problem

_STANDARD = "Standard"


def refuse_what_is_not_played(loaded: loading.Loaded, target: str) -> None:
    """A config that names what the rehearsal's clouds do not have is refused, before they say it in other words."""
    if problems := [
        *_unknown_accounts(loaded, target),
        *_unknown_regions(loaded, target),
        *_pinned_overrides(loaded, target),
        *unrecorded_releases(pipeline.evaluated(loaded, target)),
    ]:
        raise RefusedError(f"{loaded.file} cannot be rehearsed as it is", problems=problems)


def _unknown_accounts(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    azure = loaded.specs[target].settings
    if isinstance(azure, AzureSettings) and azure.auth != type(azure.auth)():
        message = "a rehearsal signs in to a subscription of its own, and to no other"
        yield loaded.document.problem(("targets", target, "auth"), message, f"--set 'targets.{target}.auth={{}}'")


def _unknown_regions(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    """Those of other clouds (government, China), which have other hosts, and those that moto has no machines for."""
    settings = loaded.specs[target].settings
    places: dict[tuple[str | int, ...], str] = {}
    regions: list[str] = []
    known: Collection[str] = ()
    if isinstance(settings, AwsSettings):
        places, regions = {("region",): settings.region}, settings.publish.regions
        known = INSTANCE_TYPE_OFFERINGS["region"]
    elif isinstance(settings, AzureSettings):
        places, regions = {("location",): settings.location}, settings.publish.regions
        known = REGIONS
    places |= {("publish", "regions", number): region for number, region in enumerate(regions)}
    for path, region in places.items():
        if region not in known:
            message, instead = f"a rehearsal has no region {region}", ", ".join(sorted(known))
            yield loaded.document.problem(("targets", target, *path), message, f"with --set, one of {instead}")


def _pinned_overrides(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    """Stand-ins are served for every artifact, and none has the bytes that an operator pinned."""
    policy = " --set artifacts.require_sha256=false" if loaded.config.artifacts.require_sha256 else ""
    requests = [request for step in pipeline.evaluated(loaded, target) for request in step.requests.values()]
    for name, url in {request.override: request.url for request in requests if request.sha256}.items():
        message = "a rehearsal serves a stand-in for this artifact, which cannot have the config's sha256"
        hint = f"rehearse without the digest: --set overrides.{name}={url}{policy}"
        yield loaded.document.problem(("overrides", name), message, hint)


def scene_for(loaded: loading.Loaded, target: str, folder: Path) -> Scene:
    """Everything that is there before the build; its trees are written below `folder`."""
    config = loaded.config

    def tree() -> Path:
        return next(iter(sorted((folder / config.name).glob("*/tree"))), folder / "tree")

    spec = loaded.specs[target]
    settings = spec.settings
    return Scene(
        cloud=spec.provider,
        release=config.windows.release,
        supplies=make_supplies(pipeline.evaluated(loaded, target)),
        tree=tree,
        aws=_aws(settings, folder) if isinstance(settings, AwsSettings) else None,
        azure=_azure(settings) if isinstance(settings, AzureSettings) else None,
        proxy=config.proxy.https if config.proxy else None,
    )


def _aws(aws: AwsSettings, folder: Path) -> AwsOptions:
    network, base, profile = aws.network, aws.base_image, aws.auth.profile
    return AwsOptions(
        regions=(aws.region, *aws.publish.regions),
        images=(*DEFAULT_IMAGES, *((own_base(base.name, base.owner),) if base else ())),
        standing=Standing(
            network.vpc_id,
            network.subnet_id,
            tuple(network.security_group_ids),
            aws.iam_instance_profile,
            private=network.reach_by == "private",
        ),
        profile=(profile, folder / "credentials") if profile else None,
        limits=Limits(keys=_keys(aws)),
        operator=_operator(network.allowed_cidrs),
    )


def _keys(aws: AwsSettings) -> dict[tuple[str, str], str]:
    """The keys that the config names, all of them enabled."""
    asked = aws.encryption
    if asked is None:
        return {}
    own = {aws.region: asked.kms_key} if asked.kms_key else {}
    return dict.fromkeys({**own, **asked.region_kms_keys}.items(), "Enabled")


def _azure(azure: AzureSettings) -> AzureOptions:
    definition = GalleryDefinition(
        resource_group=azure.gallery.resource_group,
        gallery=azure.gallery.name,
        image=azure.gallery.definition,
        location=azure.location,
        generation=f"V{azure.generation}",
        security_type="" if azure.security_type == _STANDARD else azure.security_type,
    )
    groups = []
    if azure.build_resource_group:
        groups.append(ExistingGroup(azure.build_resource_group, azure.location, key_vault=azure.key_vault or ""))
    if azure.network.virtual_network:
        name, subnet = azure.network.resource_group or "networks", azure.network.subnet or "default"
        groups.append(ExistingGroup(name, azure.location, azure.network.virtual_network, subnet))
    return AzureOptions(
        definitions=(definition,),
        groups=tuple(groups),
        operator=_operator(azure.network.allowed_cidrs),
        encryption_sets={azure.disk_encryption_set: azure.location} if azure.disk_encryption_set else {},
        inside="" if azure.network.public_address else azure.network.virtual_network or "",
    )


def _operator(cidrs: Sequence[str]) -> str:
    """Where Packer is seen to come from: somewhere that the config admits, if it admits anybody."""
    networks = [ipaddress.ip_network(cidr, strict=False) for cidr in cidrs]
    if not networks or any(ipaddress.ip_address(OPERATOR_ADDRESS) in network for network in networks):
        return OPERATOR_ADDRESS
    return str(networks[0][0])
