"""The stand-in of AWS: from the settings of a target, it makes the initial state of the account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from imagegen.providers.aws.settings import Settings
from imagegen.rehearsal.clouds.aws.account import AccountLimits
from imagegen.rehearsal.clouds.aws.base_images import DEFAULT_IMAGES, custom_image
from imagegen.rehearsal.clouds.aws.boot import Ec2Platform, make_instance
from imagegen.rehearsal.clouds.aws.cloud import AwsOptions
from imagegen.rehearsal.clouds.aws.existing_resources import ExistingResources
from imagegen.rehearsal.clouds.model import StandIn
from imagegen.rehearsal.network.machine import operator_address

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.config.yaml import YamlPath


def _options(aws: Settings, folder: Path) -> AwsOptions:
    network, base, profile = aws.network, aws.base_image, aws.auth.profile
    return AwsOptions(
        regions=(aws.region, *aws.publish.regions),
        images=(*DEFAULT_IMAGES, *((custom_image(base.name, base.owner),) if base else ())),
        existing=ExistingResources(
            network.vpc_id,
            network.subnet_id,
            tuple(network.security_group_ids),
            aws.iam_instance_profile,
            private=network.reach_by == "private",
        ),
        profile=(profile, folder / "credentials") if profile else None,
        limits=AccountLimits(keys=_keys(aws)),
        operator=operator_address(network.allowed_cidrs),
    )


def _keys(aws: Settings) -> dict[tuple[str, str], str]:
    """The states of all keys in the config: they are enabled."""
    encryption = aws.encryption
    if encryption is None:
        return {}
    build_key = {aws.region: encryption.kms_key} if encryption.kms_key else {}
    return dict.fromkeys({**build_key, **encryption.region_kms_keys}.items(), "Enabled")


def _regions(aws: Settings) -> dict[YamlPath, str]:
    places: dict[YamlPath, str] = {("region",): aws.region}
    return places | {("publish", "regions", number): name for number, name in enumerate(aws.publish.regions)}


STAND_IN: Final = StandIn[Settings](
    options=_options,
    regions=_regions,
    # Without the regions of GovCloud and China, which have other hosts, and those in which moto has no instance types.
    known_regions=frozenset(INSTANCE_TYPE_OFFERINGS["region"]),
    sizes=lambda aws: aws.instance_types,
    make_instance=make_instance,
    make_platform=Ec2Platform,
    agents="EC2Launch",
    user_data="guest/user-data.txt",
    account_options=AwsOptions,
)
