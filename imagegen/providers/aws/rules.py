"""The rules for AWS targets: settings that AWS rejects, or that would have no effect. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of, table
from imagegen.providers.aws.nesting import hyper_v_size as hyper_v_size
from imagegen.providers.aws.settings import Settings
from imagegen.providers.aws.source import OWN_TAGS
from imagegen.providers.shared_rules import (
    BASE_IMAGE_RELEASE,
    DISK_HOLDS_BASE_IMAGE,
    LICENCE_ACKNOWLEDGED,
    NETWORK_FORM,
    UNACKNOWLEDGED,
    WINDOWS_OFFERED,
    find_build_region,
    find_open_networks,
    find_other_windows,
    find_small_disk,
    find_too_many_tags,
    find_unknown_regions,
    find_wrong_networks,
    offered_image,
    publish_regions,
)
from imagegen.providers.tags import COMPONENT_TAGS, OPTION_TAGS
from imagegen.rules.rule import ERROR, WARNING, Finding, TargetRule

if TYPE_CHECKING:
    from imagegen.config.yaml import YamlPath
    from imagegen.settle.spec import Spec

    Target = Spec[Settings]

# https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html
_GP3_IOPS: Final = 3000
_GP3_IOPS_PER_GIB: Final = 500
_GP3_IOPS_PER_MIB: Final = 4

# The form of the suffix of an AMI's name: time, start of the identity, start of a random number.
AMI_SUFFIX: Final = "YYYYMMDDhhmmss-xxxxxxxx-xxxxxx"

_TAGS_WRITTEN: Final = OWN_TAGS | COMPONENT_TAGS


rule = TargetRule(Settings)


aws_copy_to_build_region = rule("aws-copy-to-build-region", ERROR, "publish.regions must not contain the build region")(
    lambda target: find_build_region(target.settings.publish.regions, target.settings.region)
)

WINRM: Final = (
    rule.simple(
        "aws-winrm-admitted",
        ERROR,
        "The builder's WinRM port must be open to Packer",
        lambda aws: not aws.network.allowed_cidrs and not aws.network.security_group_ids,
        Finding(
            ("network",),
            "Packer could not reach the builder: its temporary security group allows no network",
            "write the networks where Packer runs to allowed_cidrs, or set security_group_ids",
        ),
    ),
    rule.simple(
        "aws-cidrs-or-groups",
        ERROR,
        "allowed_cidrs and security_group_ids must not be used together",
        lambda aws: aws.network.allowed_cidrs and aws.network.security_group_ids,
        Finding(
            ("network", "allowed_cidrs"),
            "with security_group_ids, these networks have no effect",
            "leave one of them out",
        ),
    ),
)


aws_open_to_everybody = rule(
    "aws-open-to-everybody", WARNING, "The builder's WinRM port should not be open to the whole internet"
)(lambda target: find_open_networks(target.settings.network.allowed_cidrs))

aws_reached_by_public = rule.simple(
    "aws-reached-by-public",
    ERROR,
    "reach_by: public requires a public address",
    lambda aws: aws.network.public_address is False and aws.network.reach_by == "public",
    Finding(
        ("network", "public_address"),
        "Packer connects to the public address of the builder (reach_by), but the builder gets none",
        "write reach_by: private, or leave public_address out",
    ),
)


@rule("aws-imds-tokens", ERROR, "require_imds_tokens requires a metadata service of cloudbase-init that sends tokens")
def aws_imds_tokens(target: Target) -> Iterator[Finding]:
    cloudbase = table("cloudbase-init")
    (service,) = target.catalogue["cloudbase_init", "metadata_services", target.provider].value
    sends_no_token = service in target.metadata_services and not cloudbase["ec2_service_uses_imds_tokens"]
    if target.settings.require_imds_tokens and sends_no_token:
        yield Finding(
            ("require_imds_tokens",),
            cloudbase["ec2_service_finding"],
            "leave it out, or write a service that sends tokens to cloudbase_init.metadata_services.aws",
        )


aws_vpc_and_subnet = rule.simple(
    "aws-vpc-and-subnet",
    ERROR,
    "vpc_id requires subnet_id or public_address",
    lambda aws: aws.network.vpc_id and not aws.network.subnet_id and aws.network.public_address is None,
    Finding(
        ("network", "vpc_id"),
        "without subnet_id or public_address, Packer's plugin uses a subnet of the default VPC instead",
        "set subnet_id or public_address",
    ),
)


@rule("aws-instance-runs-windows", ERROR, "The builder's instance types must run Windows Server")
def aws_instance_runs_windows(target: Target) -> Iterator[Finding]:
    release = target.config.windows.release
    families = [row for row in table("aws-instances")["families"] if release in row.get("releases", [release])]
    for index, kind in enumerate(target.settings.instance_types):
        if row := next((row for row in families if re.fullmatch(row["pattern"], kind)), None):
            yield Finding(
                ("instance_types", index),
                f"Windows Server does not run on {kind} ({row['note']})",
                "choose another type, for example m6i.large",
            )


@rule("aws-one-partition", ERROR, "Regions, keys and roles must be in one AWS partition")
def aws_one_partition(target: Target) -> list[Finding]:
    aws, own = target.settings, _partition(target.settings.region)
    names: dict[YamlPath, str] = {path: key for path, _, key in _keys(aws)}
    if aws.auth.assume_role:
        names["auth", "assume_role", "role_arn"] = aws.auth.assume_role.role_arn
    if aws.publish.sharing:
        organizations = enumerate(aws.publish.sharing.organizations)
        names |= {("publish", "sharing", "organizations", index): arn for index, arn in organizations}
    partitions = {path: _partition(region) for path, region in publish_regions(aws.publish.regions).items()}
    partitions |= {path: arn.split(":")[1] for path, arn in names.items() if arn.startswith("arn:")}
    return [
        Finding(
            path,
            f"it is in the partition {partition}, but {aws.region} is in {own}: no account spans both",
            f"choose one in {own}, and use another config for {partition}",
        )
        for path, partition in partitions.items()
        if partition != own
    ]


def _keys(aws: Settings) -> Iterator[tuple[YamlPath, str, str]]:
    """The path, the region and the id or ARN of each key."""
    if aws.encryption and aws.encryption.kms_key:
        yield ("encryption", "kms_key"), aws.region, aws.encryption.kms_key
    for region, key in aws.encryption.region_kms_keys.items() if aws.encryption else ():
        yield ("encryption", "region_kms_keys", region), region, key


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
            "choose a shorter prefix with valid characters",
        )


@rule("aws-gp2-speed", ERROR, "iops and throughput must be set only for gp3 disks")
def aws_gp2_speed(target: Target) -> list[Finding]:
    disk = target.settings.disk
    return [
        Finding(
            ("disk", key),
            "AWS rejects this setting for a gp2 disk, whose speed depends on its size",
            "leave it out, or write type: gp3",
        )
        for key, value in (("iops", disk.iops), ("throughput", disk.throughput))
        if disk.type == "gp2" and value is not None
    ]


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
            f"{disk.throughput} MiB/s is too much: AWS allows 0.25 MiB/s for each IOPS of a gp3 disk, which has {iops}",
            f"write at most {iops // _GP3_IOPS_PER_MIB}, or iops of at least {disk.throughput * _GP3_IOPS_PER_MIB}",
        )


@rule("aws-key-of-copied-region", ERROR, "A region in region_kms_keys must be in publish.regions")
def aws_key_of_copied_region(target: Target) -> list[Finding]:
    aws = target.settings
    return [
        Finding(
            ("encryption", "region_kms_keys", region),
            f"{region} gets no copy, so this key would encrypt nothing",
            "write it to kms_key"
            if region == aws.region
            else "add the region to publish.regions, or leave its key out",
        )
        for region in (aws.encryption.region_kms_keys if aws.encryption else ())
        if region not in aws.publish.regions
    ]


@rule("aws-key-in-its-region", ERROR, "A KMS key must be in the region where it encrypts")
def aws_key_in_its_region(target: Target) -> list[Finding]:
    return [
        Finding(
            path,
            f"the key is in {key.split(':')[3]}, and AWS encrypts only with keys in the same region",
            f"choose a key in {region}",
        )
        for path, region, key in _keys(target.settings)
        if key.startswith("arn:") and key.split(":")[3] != region
    ]


aws_public_and_encrypted = rule.simple(
    "aws-public-and-encrypted",
    ERROR,
    "A public image must not be encrypted",
    lambda aws: aws.publish.sharing and aws.publish.sharing.public and aws.encryption,
    Finding(
        ("publish", "sharing", "public"),
        "AWS cannot make an encrypted image public",
        "share it with accounts, or leave encryption out",
    ),
)


@rule("aws-shared-default-key", WARNING, "A shared, encrypted image should have keys of your own")
def aws_shared_default_key(target: Target) -> Iterator[Finding]:
    aws = target.settings
    with_key = {region for _, region, _ in _keys(aws)}
    places = [region for region in (aws.region, *aws.publish.regions) if region not in with_key]
    if places and aws.encryption and aws.publish.sharing and not aws.publish.sharing.public:
        yield Finding(
            ("publish", "sharing"),
            f"other accounts cannot use AWS' default key, which encrypts the image in {', '.join(places)}",
            "set your own keys for these regions, and allow the other accounts to use them",
        )


@rule("aws-tag-name", ERROR, "A tag must not have a name that imagegen or AWS uses itself")
def aws_tag_name(target: Target) -> Iterator[Finding]:
    for name in target.settings.tags:
        path = ("tags", name)
        if name.lower().startswith("aws:"):
            yield Finding(path, "AWS reserves names that begin with aws:", "choose another name")
        elif name.lower().startswith("imagegen") or name in _TAGS_WRITTEN | OPTION_TAGS:
            yield Finding(path, "imagegen overwrites this tag with its own", "choose another name")


aws_tag_count = rule(
    "aws-tag-count", ERROR, "An AWS resource must have at most 50 tags", "AWS rejects a resource with more"
)(lambda target: find_too_many_tags(target.settings.tags, "aws_tags", _TAGS_WRITTEN))


@rule("aws-region-known", WARNING, "The catalogue should know the AWS regions")
def aws_region_known(target: Target) -> Iterator[Finding]:
    aws = target.settings
    return find_unknown_regions("aws", "AWS", {("region",): aws.region, **publish_regions(aws.publish.regions)})


@rule(*WINDOWS_OFFERED)
def windows_offered(target: Target) -> Iterator[Finding]:
    """A base image of the operator's own is always allowed."""
    image = offered_image(target)
    if image and image["name"] is None and not target.settings.base_image:
        yield Finding((), image["reason"], "choose another release, or set base_image")


disk_holds_base_image = rule(*DISK_HOLDS_BASE_IMAGE)(
    lambda target: find_small_disk(
        target, ("disk", "size_gb"), None if target.settings.base_image else target.settings.disk.size_gb
    )
)


@rule(*BASE_IMAGE_RELEASE)
def base_image_release(target: Target) -> Iterator[Finding]:
    if image := target.settings.base_image:
        yield from find_other_windows(target, image.name)


licence_acknowledged = rule.simple(
    *LICENCE_ACKNOWLEDGED,
    lambda aws: aws.publish.sharing and not aws.publish.sharing.licence_acknowledged,
    UNACKNOWLEDGED,
)
network_form = rule(*NETWORK_FORM)(lambda target: find_wrong_networks(target.settings.network.allowed_cidrs))
