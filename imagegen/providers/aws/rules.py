"""The rules for AWS targets: settings that AWS rejects, or that would have no effect. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of, table
from imagegen.providers.aws.settings import Settings
from imagegen.providers.aws.source import OWN_TAGS
from imagegen.providers.shared_rules import (
    BASE_IMAGE_RELEASE,
    BUILD_REGION_PUBLISHED,
    DISK_HOLDS_BASE_IMAGE,
    HYPER_V_SIZE,
    REGION_KNOWN,
    TAG_COUNT,
    TAG_NAME,
    WINDOWS_OFFERED,
    WINRM_OPEN_TO_EVERYBODY,
    find_build_region,
    find_open_networks,
    find_other_windows,
    find_small_disk,
    find_too_many_tags,
    find_unknown_regions,
    offered_image,
    publish_regions,
)
from imagegen.providers.tags import COMPONENT_TAGS, OPTION_TAGS
from imagegen.rules.rule import ERROR, WARNING, Finding, TargetRule

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec

    Target = Spec[Settings]


# The form of the suffix of an AMI's name: time, start of the identity, start of a random number.
AMI_SUFFIX: Final = "YYYYMMDDhhmmss-xxxxxxxx-xxxxxx"

_TAGS_WRITTEN: Final = OWN_TAGS | COMPONENT_TAGS


rule = TargetRule(Settings)


build_region_published = rule(*BUILD_REGION_PUBLISHED)(
    lambda target: find_build_region(target.settings.publish.regions, target.settings.region)
)

aws_winrm_admitted = rule.simple(
    "aws-winrm-admitted",
    ERROR,
    "The builder's WinRM port must be open to Packer",
    lambda aws: not aws.network.allowed_cidrs and not aws.network.security_group_ids,
    Finding(
        ("network",),
        "Packer could not reach the builder: its temporary security group allows no network",
        "write the networks where Packer runs to allowed_cidrs, or set security_group_ids",
    ),
)

open_to_everybody = rule(*WINRM_OPEN_TO_EVERYBODY)(
    lambda target: find_open_networks(target.settings.network.allowed_cidrs)
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


@rule("aws-shared-default-key", WARNING, "A shared, encrypted image should have keys of your own")
def aws_shared_default_key(target: Target) -> Iterator[Finding]:
    aws = target.settings
    with_key = {region for _, region, _ in aws.encryption_keys()}
    places = [region for region in (aws.region, *aws.publish.regions) if region not in with_key]
    if places and aws.encryption and aws.publish.sharing and not aws.publish.sharing.public:
        yield Finding(
            ("publish", "sharing"),
            f"other accounts cannot use AWS' default key, which encrypts the image in {', '.join(places)}",
            "set your own keys for these regions, and allow the other accounts to use them",
        )


@rule(*TAG_NAME)
def aws_tag_name(target: Target) -> Iterator[Finding]:
    for name in target.settings.tags:
        path = ("tags", name)
        if name.lower().startswith("aws:"):
            yield Finding(path, "AWS reserves names that begin with aws:", "choose another name")
        elif name.lower().startswith("imagegen") or name in _TAGS_WRITTEN | OPTION_TAGS:
            yield Finding(path, "imagegen overwrites this tag with its own", "choose another name")


aws_tag_count = rule(*TAG_COUNT)(lambda target: find_too_many_tags(target.settings.tags, "aws_tags", _TAGS_WRITTEN))


@rule(*REGION_KNOWN)
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


@rule(*HYPER_V_SIZE)
def hyper_v_size(target: Target) -> Iterator[Finding]:
    if target.config.windows.hyper_v != "isolation":
        return
    rows = table("nesting")["can"]["aws"]
    for index, kind in enumerate(target.settings.instance_types):
        if not any(re.fullmatch(row["pattern"], kind) for row in rows):
            yield Finding(
                ("instance_types", index),
                f"{kind} does not let Windows start a hypervisor, which Hyper-V isolation needs",
                "choose a type of C8i, M8i or R8i, for example m8i.large, or write hyper_v: tools",
            )
