"""Looks up a base image in one region: by default the newest of Amazon's own Windows images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from imagegen.artifacts.lock import BaseForm, LockedBase
from imagegen.errors import ConfigError, RefusedError
from imagegen.providers.aws.client import explain_errors
from imagegen.providers.aws.settings import OWNER, REGION, Settings

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client


# The root device of every Windows AMI; the template sets size and type of this disk.
ROOT_DEVICE = "/dev/sda1"
BASE_FORM = BaseForm(
    identity={"owner": OWNER, "name": r"[A-Za-z0-9()\[\]./'@_ -]{3,128}"},
    place={"region": REGION, "ami_id": r"ami-[0-9a-f]{8,17}"},
)


def base_request(settings: Settings, offered: Mapping[str, str]) -> dict[str, str]:
    """The request for the operator's own base image, or for Amazon's, whose name is in the catalogue."""
    own = settings.base_image
    name, owner = (own.name, own.owner) if own else (offered["name"], "amazon")
    return {"region": settings.region, "name": name, "owner": owner}


def look_up_base(ec2: EC2Client, request: Mapping[str, str]) -> LockedBase:
    """Look up the newest base image that matches. Its name is the same in every region, but not its id."""
    label = f"{request['name']} of {request['owner']} in {request['region']}"
    with explain_errors(f"looking up the base image {label}", RefusedError):
        images = ec2.describe_images(
            Owners=[request["owner"]],
            Filters=[{"Name": "name", "Values": [request["name"]]}, {"Name": "state", "Values": ["available"]}],
        )["Images"]
    if not images:
        raise ConfigError(
            f"there is no base image {label}",
            hint="check the region, and that Amazon still offers this Windows release there"
            if request["owner"] == "amazon"
            else "check the region, the name and the owner, and that the owner shares it with this account",
        )
    newest = max(images, key=lambda image: (image["CreationDate"], image["Name"]))
    if (newest.get("Platform"), newest.get("RootDeviceName")) != ("windows", ROOT_DEVICE):
        raise ConfigError(
            f"the base image {newest['Name']}, {newest['ImageId']}, is not Windows with its disk at {ROOT_DEVICE}",
            hint="choose a base image that was made from one of Amazon's",
        )
    return LockedBase(
        request=dict(request),
        identity={"owner": request["owner"], "name": newest["Name"]},
        place={"region": request["region"], "ami_id": newest["ImageId"]},
    )
