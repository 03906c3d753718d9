"""A target on AWS in; what lies in its account from the start, so that what it names is there, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

from imagegen.providers.aws.settings import Settings
from imagegen.rehearsal.clouds.aws.account import Limits
from imagegen.rehearsal.clouds.aws.edge import AwsOptions
from imagegen.rehearsal.clouds.aws.standing import Standing
from imagegen.rehearsal.clouds.aws.stock_images import DEFAULT_IMAGES, own_base
from imagegen.rehearsal.clouds.model import StandIn
from imagegen.rehearsal.network.machine import operator_address

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.documents.yaml import YamlPath


def _options(aws: Settings, folder: Path) -> AwsOptions:
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
        operator=operator_address(network.allowed_cidrs),
    )


def _keys(aws: Settings) -> dict[tuple[str, str], str]:
    """The keys that the config names, all of them enabled."""
    asked = aws.encryption
    if asked is None:
        return {}
    own = {aws.region: asked.kms_key} if asked.kms_key else {}
    return dict.fromkeys({**own, **asked.region_kms_keys}.items(), "Enabled")


def _regions(aws: Settings) -> dict[YamlPath, str]:
    places: dict[YamlPath, str] = {("region",): aws.region}
    return places | {("publish", "regions", number): name for number, name in enumerate(aws.publish.regions)}


STAND_IN: Final = StandIn[Settings](
    options=_options,
    regions=_regions,
    # Neither those of government and of China, which have other hosts, nor those that moto has no machines for.
    known_regions=frozenset(INSTANCE_TYPE_OFFERINGS["region"]),
    sizes=lambda aws: aws.instance_types,
    agents="EC2Launch",
    user_data="guest/user-data.txt",
)
