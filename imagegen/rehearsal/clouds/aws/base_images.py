"""The Windows AMIs in a region before a build: those of Amazon, with dates in their names, and custom ones."""

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
class WindowsImage:
    """A Windows AMI: its name, its date, and its owner: `amazon`, `self` or an account."""

    name: str
    created: datetime.date
    owner: str = "amazon"


def amazon_images(*dates: datetime.date) -> tuple[WindowsImage, ...]:
    """The images that Amazon publishes on each of these days."""
    names = [
        f"Windows_Server-{year}-English-{kind}-Base" for year in ("2019", "2022", "2025") for kind in ("Core", "Full")
    ]
    names += [f"EC2LaunchV2-Windows_Server-2019-English-{kind}-Base" for kind in ("Core", "Full")]
    return tuple(WindowsImage(f"{name}-{date:%Y.%m.%d}", date) for date in dates for name in names)


# Two months, so that the newest image must be chosen.
DEFAULT_IMAGES = amazon_images(datetime.date(2026, 10, 14), datetime.date(2026, 11, 11))


def custom_image(pattern: str, owner: str) -> WindowsImage:
    """A base image that matches the name pattern in a config."""
    name = pattern.replace("*", "2026.11.11").replace("?", "0")
    return WindowsImage(name, datetime.date(2026, 11, 11), owner)


def base_ami_id(region: str, name: str) -> str:
    """The id of an AMI, which differs in each region and is the same in every rehearsal."""
    return f"ami-{hashlib.sha256(f'{region}/{name}'.encode()).hexdigest()[:17]}"


class WindowsAmi(Ami):
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


def add_base_images(backend: Moto, images: tuple[WindowsImage, ...]) -> None:
    """Add these images to a region, and remove moto's sample images."""
    backend.amis.clear()
    accounts = {"amazon": AMAZON_ACCOUNT, "self": ACCOUNT}
    for image in images:
        ami_id = base_ami_id(backend.region_name, image.name)
        backend.amis[ami_id] = WindowsAmi(
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
