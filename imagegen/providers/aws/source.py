"""The tags of images on AWS, and the values of the source template of a plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import limit_of
from imagegen.providers.aws.settings import IMDS_V2, Settings
from imagegen.providers.tags import ImageTags, make_tags

if TYPE_CHECKING:
    from imagegen.plan.model import BuildPlan

# In addition to those of components; a test compares them with the templates.
OWN_TAGS: Final = frozenset(
    {
        *("build_date", "build_timestamp", "creationTimestamp", "imagegen_image_id", "imagegen_name"),
        *("imagegen_version", "imagegen_run_id", "imagegen_expires_at", "imagegen_report"),
        *("Name", "distribution", "distribution_version", "source_ami", "source_ami_name"),
    }
)


def image_tags(settings: Settings, versions: Mapping[str, str]) -> ImageTags:
    """The tags of an image, within the limit of AWS."""
    return make_tags(settings.tags, versions, limit_of("aws_tags")["max"] - len(OWN_TAGS))


def source_values(plan: BuildPlan[Settings]) -> dict[str, object]:
    """The variable of the template: the settings and the base image of the region. None means not set."""
    settings = plan.settings
    disk, network, encryption = settings.disk, settings.network, settings.encryption
    role, own_groups = settings.auth.assume_role, settings.network.security_group_ids
    return {
        "region": settings.region,
        "source_ami": plan.build.base_place["ami_id"],
        "instance_types": settings.instance_types,
        "name_prefix": settings.name_prefix,
        "iam_profile": settings.iam_instance_profile,
        "imds_support": IMDS_V2 if settings.require_imds_tokens else None,
        "disk_size_gb": disk.size_gb,
        "disk_type": disk.type,
        "disk_iops": disk.iops,
        "disk_mib_s": disk.throughput,
        "encrypted": True if encryption else None,
        "kms_key": encryption.kms_key if encryption else None,
        "vpc_id": network.vpc_id,
        "subnet_id": network.subnet_id,
        "group_ids": own_groups or None,
        "allowed_cidrs": None if own_groups else network.allowed_cidrs,
        "public_address": network.public_address,
        # By default the plugin uses the public address, or else the private one.
        "interface": "private_ip" if network.reach_by == "private" else None,
        "profile": settings.auth.profile,
        "role_arn": role.role_arn if role else None,
        "role_session": role.session_name if role else None,
        # In the plugin, `auto` means the on-demand price.
        "spot_price": (settings.spot.max_price or "auto") if settings.spot else None,
    }
