"""AMIs that are created or copied: the checks and effects of EC2 that moto lacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from moto.ec2.models.amis import Ami

from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.instances import AwsError
from imagegen.rehearsal.clouds.aws.tagging import tag_specifications

if TYPE_CHECKING:
    from collections.abc import Mapping

IMDS_V2 = "v2.0"
_NAME = re.compile(r"[A-Za-z0-9()\[\]. /\-'@_]{3,128}\Z")
_SHOWN_STATES = ("available", "pending", "failed", "invalid", "error", "transient")
_IMAGE_ID = re.compile(rb"<imageId>(ami-[0-9a-f]+)</imageId>")


class BuiltAmi(Ami):
    """moto's AMI with the encryption of its root disk."""

    encrypted = False

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        [root] = super().block_device_mappings
        return [{**root, "Ebs": {**root["Ebs"], "Encrypted": self.encrypted}}]


class Images:
    """Names, tags and states of AMIs. A copy or new image is pending for a number of DescribeImages requests."""

    def __init__(self, copy_polls: int, create_polls: int) -> None:
        self._copy_polls = copy_polls
        self._create_polls = create_polls
        self._pending: dict[tuple[str, str], int] = {}
        self._answers: dict[tuple[str, str], tuple[dict[str, str], bytes]] = {}

    def find_answer(self, region: str, form: Mapping[str, str]) -> bytes | None:
        """The recorded answer of CopyImage to this request and client token, even if the image no longer exists.

        https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html
        """
        recorded, answer = self._answers.get((region, form.get("ClientToken", "")), (_parameters(form), None))
        if recorded != _parameters(form):
            message = "The client token was used for another request: arguments on this request do not match it."
            raise AwsError("IdempotentParameterMismatch", message)
        return answer

    def check_name(self, region: str, name: str) -> None:
        """Check that an AMI name is valid, and unique in its account and region."""
        if not _NAME.match(name):
            raise AwsError("InvalidAMIName.Malformed", f"AMI names must be 3 to 128 of the allowed characters: {name}")
        for image in moto_call.ec2(region).amis.values():
            if image.name == name and image.owner_id == moto_call.ACCOUNT:
                raise AwsError("InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {image.id}")

    def check_copy(self, form: Mapping[str, str]) -> None:
        """Check that a copy with a key is encrypted."""
        if form.get("KmsKeyId") and form.get("Encrypted") != "true":
            message = "The parameter KmsKeyId requires the parameter Encrypted to be set."
            raise AwsError("InvalidParameterDependency", message)

    def check_attribute(self, form: Mapping[str, str]) -> None:
        """Check the attribute imdsSupport. It can be enabled, but not disabled again."""
        value = form.get("ImdsSupport.Value", IMDS_V2)
        if value != IMDS_V2:
            raise AwsError("InvalidParameterValue", f"Invalid value '{value}' for imdsSupport.")

    def after_modify(self, region: str, form: Mapping[str, str]) -> None:
        """After ModifyImageAttribute: set imdsSupport, which moto ignores."""
        if "ImdsSupport.Value" in form:
            moto_call.ec2(region).amis[form["ImageId"]].imds_support = IMDS_V2

    def after_create(self, region: str, form: Mapping[str, str], answer: bytes) -> None:
        """After CreateImage: tag the snapshot, set the root device type, and mark the image as pending."""
        for image in _find_images(region, answer):
            tags = tag_specifications(form)
            image.ebs_snapshot.add_tags(tags.get("snapshot", {}))
            image.root_device_type = "ebs"
            _change_class(image)
            disks = moto_call.ec2(region).get_instance(form["InstanceId"]).block_device_mapping.values()
            image.encrypted = all(moto_call.ec2(region).volumes[disk.volume_id].encrypted for disk in disks)
            self._mark_pending(region, image, self._create_polls)

    def after_copy(self, region: str, form: Mapping[str, str], answer: bytes) -> None:
        """After CopyImage: set encryption and tags, with those of the source if requested, and mark it as pending."""
        if form.get("ClientToken"):
            self._answers[region, form["ClientToken"]] = (_parameters(form), answer)
        source = moto_call.ec2(form.get("SourceRegion", "")).amis[form.get("SourceImageId", "")]
        for image in _find_images(region, answer):
            image.root_device_type = source.root_device_type
            _change_class(image)
            # The copy of an encrypted image is always encrypted.
            image.encrypted = form.get("Encrypted") == "true" or getattr(source, "encrypted", False)
            image.ebs_snapshot.add_tags(tag_specifications(form).get("snapshot", {}))
            if form.get("CopyImageTags") == "true":
                image.add_tags({tag["key"]: tag["value"] for tag in source.get_tags()})
            image.add_tags(tag_specifications(form).get("image", {}))
            image.ebs_snapshot.description = (
                f"Copied for DestinationAmi {image.id} from SourceAmi {source.id} "
                f"for SourceSnapshot {source.ebs_snapshot.id}. Task created on 1,792,000,000,000."
            )
            self._mark_pending(region, image, self._copy_polls)

    def _mark_pending(self, region: str, image: moto_call.Moto, polls: int) -> None:
        if polls:
            image.state = "pending"
            self._pending[region, image.id] = polls

    def after_describe(self, region: str, answer: bytes) -> None:
        """After DescribeImages: count the request for each pending image, and make it available after the last one."""
        for image in _find_images(region, answer):
            remaining = self._pending.get((region, image.id))
            if remaining is None:
                continue
            if remaining > 1:
                self._pending[region, image.id] = remaining - 1
            else:
                del self._pending[region, image.id]
                image.state = "available"


def without_disabled(form: Mapping[str, str]) -> dict[str, str]:
    """The form of DescribeImages, so that moto lists disabled images only where it is asked for them, as EC2 does."""
    if form.get("IncludeDisabled") == "true":
        return dict(form)
    number = 1 + max((int(field.split(".")[1]) for field in form if field.startswith("Filter.")), default=0)
    states = {f"Filter.{number}.Value.{at}": state for at, state in enumerate(_SHOWN_STATES, 1)}
    return {**form, f"Filter.{number}.Name": "state", **states}


def _parameters(form: Mapping[str, str]) -> dict[str, str]:
    """The fields in which two requests with the same client token must be equal."""
    return {field: value for field, value in form.items() if field not in ("Action", "Version", "ClientToken")}


def _change_class(image: moto_call.Moto) -> None:
    # moto cannot be told to create images of another class.
    image.__class__ = BuiltAmi


def _find_images(region: str, answer: bytes) -> list[Any]:
    known = moto_call.ec2(region).amis
    return [known[match.decode()] for match in _IMAGE_ID.findall(answer) if match.decode() in known]
