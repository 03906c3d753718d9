"""AMIs that a build or a publish makes: what EC2 checks and does about them and moto does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from moto.ec2.models.amis import Ami

from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.instances import Refused
from imagegen.rehearsal.clouds.aws.tagging import tag_specifications

if TYPE_CHECKING:
    from collections.abc import Mapping

IMDS_V2 = "v2.0"
_NAME = re.compile(r"[A-Za-z0-9()\[\]. /\-'@_]{3,128}\Z")
_IMAGE_ID = re.compile(rb"<imageId>(ami-[0-9a-f]+)</imageId>")


class MadeAmi(Ami):
    """moto's AMI with a root disk that says whether it is encrypted."""

    encrypted = False

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        [root] = super().block_device_mappings
        return [{**root, "Ebs": {**root["Ebs"], "Encrypted": self.encrypted}}]


class Images:
    """Names, tags and the time that things take: how often a copy, and a new image, is seen pending."""

    def __init__(self, copy_polls: int, create_polls: int) -> None:
        self._copy_polls = copy_polls
        self._create_polls = create_polls
        self._pending: dict[tuple[str, str], int] = {}
        self._answers: dict[tuple[str, str], tuple[dict[str, str], bytes]] = {}

    def answered(self, region: str, form: Mapping[str, str]) -> bytes | None:
        """CopyImage's answer to the same request under the same client token, whatever became of the image since.

        https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
        """
        asked, answer = self._answers.get((region, form.get("ClientToken", "")), (_parameters(form), None))
        if asked != _parameters(form):
            message = "The client token was used for another request: arguments on this request do not match it."
            raise Refused("IdempotentParameterMismatch", message)
        return answer

    def check_name(self, region: str, name: str) -> None:
        """An AMI name has a form, and is unique per account and region."""
        if not _NAME.match(name):
            raise Refused("InvalidAMIName.Malformed", f"AMI names must be 3 to 128 of the allowed characters: {name}")
        for image in moto_call.ec2(region).amis.values():
            if image.name == name and image.owner_id == moto_call.ACCOUNT:
                raise Refused("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {image.id}")

    def check_copy(self, form: Mapping[str, str]) -> None:
        """A key is for an encrypted copy."""
        if form.get("KmsKeyId") and form.get("Encrypted") != "true":
            message = "The parameter KmsKeyId requires the parameter Encrypted to be set."
            raise Refused("InvalidParameterDependency", message)

    def check_attribute(self, form: Mapping[str, str]) -> None:
        """An AMI can demand session tokens, and is never rid of it again."""
        asked = form.get("ImdsSupport.Value", IMDS_V2)
        if asked != IMDS_V2:
            raise Refused("InvalidParameterValue", f"Invalid value '{asked}' for imdsSupport.")

    def attribute_set(self, region: str, form: Mapping[str, str]) -> None:
        """ModifyImageAttribute: moto forgets this one."""
        if "ImdsSupport.Value" in form:
            moto_call.ec2(region).amis[form["ImageId"]].imds_support = IMDS_V2

    def created(self, region: str, form: Mapping[str, str], answer: bytes) -> None:
        """CreateImage: the snapshot gets its tags too, and the image its instance's system."""
        for image in _images(region, answer):
            tags = tag_specifications(form)
            image.ebs_snapshot.add_tags(tags.get("snapshot", {}))
            image.root_device_type = "ebs"
            _as_made(image)
            self._begin(region, image, self._create_polls)

    def copied(self, region: str, form: Mapping[str, str], answer: bytes) -> None:
        """CopyImage: pending for a while, and tagged as its source when that was asked."""
        if form.get("ClientToken"):
            self._answers[region, form["ClientToken"]] = (_parameters(form), answer)
        source = moto_call.ec2(form.get("SourceRegion", "")).amis[form.get("SourceImageId", "")]
        for image in _images(region, answer):
            image.root_device_type = source.root_device_type
            _as_made(image)
            # What is encrypted once stays it.
            image.encrypted = form.get("Encrypted") == "true" or getattr(source, "encrypted", False)
            image.ebs_snapshot.add_tags(tag_specifications(form).get("snapshot", {}))
            if form.get("CopyImageTags") == "true":
                image.add_tags({tag["key"]: tag["value"] for tag in source.get_tags()})
            image.add_tags(tag_specifications(form).get("image", {}))
            image.ebs_snapshot.description = (
                f"Copied for DestinationAmi {image.id} from SourceAmi {source.id} "
                f"for SourceSnapshot {source.ebs_snapshot.id}. Task created on 1,792,000,000,000."
            )
            self._begin(region, image, self._copy_polls)

    def _begin(self, region: str, image: moto_call.Moto, polls: int) -> None:
        if polls:
            image.state = "pending"
            self._pending[region, image.id] = polls

    def described(self, region: str, answer: bytes) -> None:
        """DescribeImages: each look at a pending copy brings it closer."""
        for image in _images(region, answer):
            left = self._pending.get((region, image.id))
            if left is None:
                continue
            if left > 1:
                self._pending[region, image.id] = left - 1
            else:
                del self._pending[region, image.id]
                image.state = "available"


def _parameters(form: Mapping[str, str]) -> dict[str, str]:
    """What two requests under one client token are compared by."""
    return {field: value for field, value in form.items() if field not in ("Action", "Version", "ClientToken")}


def _as_made(image: moto_call.Moto) -> None:
    # moto offers no place for another class of image: what it made becomes one.
    image.__class__ = MadeAmi


def _images(region: str, answer: bytes) -> list[Any]:
    known = moto_call.ec2(region).amis
    return [known[match.decode()] for match in _IMAGE_ID.findall(answer) if match.decode() in known]
