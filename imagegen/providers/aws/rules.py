"""What AWS does not take, and what would do nothing there. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of, table
from imagegen.judging import ERROR, WARNING, Finding, TargetRule
from imagegen.providers.aws.settings import Settings
from imagegen.providers.aws.tags import OWN_TAGS
from imagegen.providers.shared_rules import (
    BASE_IMAGE_RELEASE,
    DISK_HOLDS_BASE_IMAGE,
    LICENCE_ACKNOWLEDGED,
    NETWORK_FORM,
    WINDOWS_OFFERED,
    find_other_windows,
    find_small_disk,
    find_unacknowledged_licence,
    find_unknown_regions,
    find_wrong_networks,
    offered_image,
    publish_regions,
)
from imagegen.providers.tags import COMPONENT_TAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.settle.spec import Spec

    Target = Spec[Settings]

# https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
_GP3_IOPS: Final = 3000
_GP3_IOPS_PER_GIB: Final = 500
_GP3_IOPS_PER_MIB: Final = 4

# What the template ends an AMI's name with: the time, and the beginnings of the identity and of a random number.
AMI_SUFFIX: Final = "YYYYMMDDhhmmss-xxxxxxxx-xxxxxx"

_TAGS_WRITTEN: Final = OWN_TAGS | COMPONENT_TAGS


rule = TargetRule(Settings)


@rule("aws-copy-to-build-region", ERROR, "publish.regions must not contain the build region")
def aws_copy_to_build_region(target: Target) -> Iterator[Finding]:
    aws = target.settings
    for index, region in enumerate(aws.publish.regions):
        if region == aws.region:
            yield Finding(
                ("publish", "regions", index),
                f"{region} is the build region, which has the image already",
                "leave it out",
            )


@rule("aws-winrm-admitted", ERROR, "Packer must be admitted to the builder's WinRM port")
def aws_winrm_admitted(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    if not network.allowed_cidrs and not network.security_group_ids:
        yield Finding(
            ("network",),
            "nobody would reach the builder: its temporary security group admits nothing",
            "name the networks that Packer comes from under allowed_cidrs, or security_group_ids of your own",
        )


@rule("aws-cidrs-or-groups", ERROR, "allowed_cidrs and security_group_ids must not be used together")
def aws_cidrs_or_groups(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    if network.allowed_cidrs and network.security_group_ids:
        yield Finding(
            ("network", "allowed_cidrs"),
            "security groups of your own decide who is admitted, so these networks would do nothing",
            "leave one of both out",
        )


@rule("aws-open-to-everybody", WARNING, "The builder's WinRM port should not be open to the whole internet")
def aws_open_to_everybody(target: Target) -> Iterator[Finding]:
    for index, cidr in enumerate(target.settings.network.allowed_cidrs):
        if cidr.endswith("/0"):
            yield Finding(
                ("network", "allowed_cidrs", index),
                "everybody may try passwords at the builder's WinRM port while it runs",
                "narrow it to where Packer runs",
            )


@rule("aws-reached-by-public", ERROR, "A builder that is reached by its public address must have one")
def aws_reached_by_public(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    if network.public_address is False and network.reach_by == "public":
        yield Finding(
            ("network", "public_address"),
            "Packer is to reach the builder by a public address, and it gets none",
            "choose reach_by: private, or leave this out",
        )


@rule("aws-imds-tokens", ERROR, "require_imds_tokens requires a metadata service that asks with a token")
def aws_imds_tokens(target: Target) -> Iterator[Finding]:
    cloudbase = table("cloudbase-init")
    (service,) = target.catalogue["cloudbase_init", "metadata_services", target.provider].value
    asks_without = service in target.metadata_services and not cloudbase["ec2_service_uses_imds_tokens"]
    if target.settings.require_imds_tokens and asks_without:
        yield Finding(
            ("require_imds_tokens",),
            cloudbase["ec2_service_finding"],
            "leave it out, or name under cloudbase_init.metadata_services.aws a service that asks with a token",
        )


@rule("aws-vpc-and-subnet", ERROR, "vpc_id requires subnet_id or public_address")
def aws_vpc_and_subnet(target: Target) -> Iterator[Finding]:
    network = target.settings.network
    if network.vpc_id and not network.subnet_id and network.public_address is None:
        yield Finding(
            ("network", "vpc_id"),
            "without a subnet or public_address Packer's plugin takes one of the default VPC instead",
            "name the subnet_id, or say public_address",
        )


@rule("aws-instance-runs-windows", ERROR, "The builder's instance types must run Windows Server")
def aws_instance_runs_windows(target: Target) -> Iterator[Finding]:
    for index, kind in enumerate(target.settings.instance_types):
        row = next((row for row in table("aws-instances")["families"] if re.fullmatch(row["pattern"], kind)), None)
        if row:
            yield Finding(
                ("instance_types", index),
                f"Windows Server does not run on {kind} ({row['note']})",
                "choose one as m6i.large",
            )


@rule("aws-one-partition", ERROR, "Regions, keys and roles must be in one AWS partition")
def aws_one_partition(target: Target) -> Iterator[Finding]:
    aws = target.settings
    own = _partition(aws.region)
    places: list[tuple[YamlPath, str]] = [
        (("publish", "regions", index), _partition(region)) for index, region in enumerate(aws.publish.regions)
    ]
    named: list[tuple[YamlPath, str | None]] = []
    if aws.encryption:
        keys = aws.encryption.region_kms_keys.items()
        named.append((("encryption", "kms_key"), aws.encryption.kms_key))
        named += [(("encryption", "region_kms_keys", region), key) for region, key in keys]
    if aws.auth.assume_role:
        named.append((("auth", "assume_role", "role_arn"), aws.auth.assume_role.role_arn))
    if aws.publish.sharing:
        named += [
            (("publish", "sharing", "organizations", index), arn)
            for index, arn in enumerate(aws.publish.sharing.organizations)
        ]
    places += [(path, arn.split(":")[1]) for path, arn in named if arn and arn.startswith("arn:")]
    for path, partition in places:
        if partition != own:
            yield Finding(
                path,
                f"it is of the partition {partition}, and {aws.region} is of {own}: no account has both",
                f"name one of {own}, and use a config of its own for {partition}",
            )


def _partition(region: str) -> str:
    return next(str(row["partition"]) for row in table("clouds")["aws_partitions"] if region.startswith(row["prefix"]))


@rule("aws-image-name", ERROR, "The AMI's name must be valid on AWS")
def aws_image_name(target: Target) -> Iterator[Finding]:
    aws, limit = target.settings, limit_of("ami_name")
    image = f"windows-{target.config.windows.release}-v{target.config.kubernetes.version}"
    name = f"{aws.name_prefix}-{image}-{AMI_SUFFIX}"
    if len(name) > limit["max"] or not re.search(limit["pattern"], name):
        yield Finding(
            ("name_prefix",),
            f"{name} has {len(name)} characters: {limit['reason']}",
            "choose a shorter prefix, of such characters",
        )


@rule("aws-gp2-speed", ERROR, "iops and throughput must be set only for gp3 disks")
def aws_gp2_speed(target: Target) -> Iterator[Finding]:
    disk = target.settings.disk
    for key, value in (("iops", disk.iops), ("throughput", disk.throughput)):
        if disk.type == "gp2" and value is not None:
            yield Finding(
                ("disk", key),
                "a gp2 disk is as fast as it is large, and AWS refuses to be told",
                "leave it out, or choose type: gp3",
            )


@rule("aws-gp3-ratio", ERROR, "iops, throughput and size of a gp3 disk must fit together")
def aws_gp3_ratio(target: Target) -> Iterator[Finding]:
    disk = target.settings.disk
    iops = disk.iops or _GP3_IOPS
    if disk.type != "gp3":
        return
    if disk.iops and disk.iops > disk.size_gb * _GP3_IOPS_PER_GIB:
        yield Finding(
            ("disk", "iops"),
            f"AWS gives a gp3 disk at most {_GP3_IOPS_PER_GIB} IOPS for each GiB: {disk.size_gb} GiB are too few",
            f"at most {disk.size_gb * _GP3_IOPS_PER_GIB}",
        )
    if disk.throughput and disk.throughput * _GP3_IOPS_PER_MIB > iops:
        yield Finding(
            ("disk", "throughput"),
            f"AWS gives a gp3 disk a quarter MiB/s for each of its IOPS, and it has {iops}",
            f"at most {iops // _GP3_IOPS_PER_MIB}, or iops of at least {disk.throughput * _GP3_IOPS_PER_MIB}",
        )


@rule("aws-key-of-copied-region", ERROR, "A region in region_kms_keys must be in publish.regions")
def aws_key_of_copied_region(target: Target) -> Iterator[Finding]:
    aws = target.settings
    for region in aws.encryption.region_kms_keys if aws.encryption else ():
        if region not in aws.publish.regions:
            yield Finding(
                ("encryption", "region_kms_keys", region),
                f"{region} gets no copy, so nothing would be encrypted with this key",
                "say kms_key" if region == aws.region else "add the region to publish.regions, or leave its key out",
            )


@rule("aws-key-in-its-region", ERROR, "A KMS key must be in the region where it encrypts")
def aws_key_in_its_region(target: Target) -> Iterator[Finding]:
    aws = target.settings
    if aws.encryption is None:
        return
    keys: list[tuple[YamlPath, str, str]] = [
        (("region_kms_keys", region), region, key) for region, key in aws.encryption.region_kms_keys.items()
    ]
    if aws.encryption.kms_key:
        keys.append((("kms_key",), aws.region, aws.encryption.kms_key))
    for path, region, key in keys:
        parts = key.split(":")
        if parts[0] == "arn" and len(parts) > 3 and parts[3] != region:
            yield Finding(
                ("encryption", *path),
                f"the key is one of {parts[3]}, and AWS encrypts with keys of the same region only",
                f"name a key of {region}",
            )


@rule("aws-public-and-encrypted", ERROR, "A public image must not be encrypted")
def aws_public_and_encrypted(target: Target) -> Iterator[Finding]:
    aws = target.settings
    if aws.publish.sharing and aws.publish.sharing.public and aws.encryption:
        yield Finding(
            ("publish", "sharing", "public"),
            "AWS shares no encrypted image with everybody",
            "name accounts, or leave out encryption",
        )


@rule("aws-shared-default-key", WARNING, "A shared, encrypted image should have keys of your own")
def aws_shared_default_key(target: Target) -> Iterator[Finding]:
    aws = target.settings
    if not aws.encryption or not aws.publish.sharing or aws.publish.sharing.public:
        return
    regions = [region for region in aws.publish.regions if region not in aws.encryption.region_kms_keys]
    places = [*([] if aws.encryption.kms_key else [aws.region]), *regions]
    if places:
        yield Finding(
            ("publish", "sharing"),
            f"nobody else can use AWS' own default key, which encrypts the image in {', '.join(places)}",
            "name keys of your own for these regions, and let the others use them",
        )


@rule("aws-tag-name", ERROR, "A tag must not have a name that imagegen or AWS uses itself")
def aws_tag_name(target: Target) -> Iterator[Finding]:
    for name in target.settings.tags:
        path = ("tags", name)
        if name.lower().startswith("aws:"):
            yield Finding(path, "AWS keeps names that begin with aws: for itself", "choose another name")
        elif name.lower().startswith("imagegen") or name in _TAGS_WRITTEN:
            yield Finding(path, "imagegen writes this tag itself, over what is said here", "choose another name")


@rule("aws-tag-count", ERROR, "An AWS resource must have at most 50 tags", "AWS rejects a resource with more")
def aws_tag_count(target: Target) -> Iterator[Finding]:
    tags, limit = target.settings.tags, limit_of("aws_tags")
    room = limit["max"] - len(_TAGS_WRITTEN)
    if len(tags) > room:
        yield Finding(
            ("tags",),
            f"{limit['reason']}, of which {len(_TAGS_WRITTEN)} are imagegen's, and here are {len(tags)}",
            f"keep at most {room}, and fewer where a build has labels",
        )


@rule("aws-region-known", WARNING, "The catalogue should know the AWS regions")
def aws_region_known(target: Target) -> Iterator[Finding]:
    aws = target.settings
    yield from find_unknown_regions("aws", "AWS", {("region",): aws.region, **publish_regions(aws.publish.regions)})


@rule(*WINDOWS_OFFERED)
def windows_offered(target: Target) -> Iterator[Finding]:
    """A base image of the operator's own needs no offer."""
    image = offered_image(target)
    if image and image["name"] is None and not target.settings.base_image:
        yield Finding((), image["reason"], "choose another release, or name an image of your own under base_image")


@rule(*DISK_HOLDS_BASE_IMAGE)
def disk_holds_base_image(target: Target) -> Iterator[Finding]:
    if not target.settings.base_image:
        yield from find_small_disk(target, ("disk", "size_gb"), target.settings.disk.size_gb)


@rule(*BASE_IMAGE_RELEASE)
def base_image_release(target: Target) -> Iterator[Finding]:
    if image := target.settings.base_image:
        yield from find_other_windows(target, image.name)


@rule(*LICENCE_ACKNOWLEDGED)
def licence_acknowledged(target: Target) -> Iterator[Finding]:
    sharing = target.settings.publish.sharing
    yield from find_unacknowledged_licence(
        is_shared=sharing is not None, is_acknowledged=sharing is not None and sharing.licence_acknowledged
    )


@rule(*NETWORK_FORM)
def network_form(target: Target) -> Iterator[Finding]:
    yield from find_wrong_networks(target.settings.network.allowed_cidrs)
