"""The Windows AMIs that a region has from the start: Amazon's own, with dates in their names, or an operator's."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from typing import TYPE_CHECKING, Any

from moto.ec2.models.amis import Ami

from imagegen.rehearsal.clouds.aws.moto_call import ACCOUNT

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.aws.moto_call import Moto

AMAZON_ACCOUNT = "801119661308"
ROOT_DEVICE = "/dev/sda1"
ROOT_GIB = 30


@dataclasses.dataclass(frozen=True)
class StockImage:
    """A stock AMI: its name, the day it came out, and whose it is: `amazon`, `self` or an account."""

    name: str
    created: datetime.date
    owner: str = "amazon"


def published(*dates: datetime.date) -> tuple[StockImage, ...]:
    """What Amazon publishes on each of these days."""
    names = [
        f"Windows_Server-{year}-English-{kind}-Base" for year in ("2019", "2022", "2025") for kind in ("Core", "Full")
    ]
    names += [f"EC2LaunchV2-Windows_Server-2019-English-{kind}-Base" for kind in ("Core", "Full")]
    return tuple(StockImage(f"{name}-{date:%Y.%m.%d}", date) for date in dates for name in names)


# Two months, so that "the newest" is a choice.
DEFAULT_IMAGES = published(datetime.date(2026, 10, 14), datetime.date(2026, 11, 11))


def own_base(pattern: str, owner: str) -> StockImage:
    """A base image that a config's own pattern finds."""
    name = pattern.replace("*", "2026.11.11").replace("?", "0")
    return StockImage(name, datetime.date(2026, 11, 11), owner)


def stock_ami_id(region: str, name: str) -> str:
    """The id of a stock AMI: another in each region, and the same in every rehearsal."""
    return f"ami-{hashlib.sha256(f'{region}/{name}'.encode()).hexdigest()[:17]}"


class StockAmi(Ami):
    """moto's AMI with the root disk of a Windows image."""

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        ebs = {
            "SnapshotId": self.ebs_snapshot.id,
            "VolumeSize": ROOT_GIB,
            "DeleteOnTermination": True,
            "VolumeType": "gp3",
            "Encrypted": False,
        }
        return [{"DeviceName": self.root_device_name, "Ebs": ebs}]


def stock(backend: Moto, images: tuple[StockImage, ...]) -> None:
    """Give a region exactly these images; moto's own samples go, for nothing should be found that is not there."""
    backend.amis.clear()
    accounts = {"amazon": AMAZON_ACCOUNT, "self": ACCOUNT}
    for image in images:
        ami_id = stock_ami_id(backend.region_name, image.name)
        backend.amis[ami_id] = StockAmi(
            backend,
            ami_id,
            name=image.name,
            description=f"A Windows base image ({image.created:%Y.%m.%d})",
            owner_id=accounts.get(image.owner, image.owner),
            owner_alias="amazon" if image.owner == "amazon" else None,
            public=image.owner == "amazon",
            virtualization_type="hvm",
            architecture="x86_64",
            creation_date=datetime.datetime.combine(image.created, datetime.time(10), datetime.UTC),
            platform="windows",
            image_location=f"{image.owner}/{image.name}",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=ROOT_DEVICE,
            region_name=f"{backend.region_name}a",
        )
