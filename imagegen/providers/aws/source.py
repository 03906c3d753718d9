"""The settings of AWS as a plan keeps them, and as the source template reads them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imagegen.providers.aws.images import IMDS_V2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.providers.aws.settings import Settings


def build_settings(settings: Settings) -> dict[str, Any]:
    """Everything but where the image goes, and the base image: that one is locked, and part of the image."""
    # The other regions' keys are for copies, which publishing makes.
    return settings.model_dump(
        mode="json", exclude={"publish": True, "base_image": True, "encryption": {"region_kms_keys": True}}
    )


def publish_settings(settings: Settings) -> dict[str, Any]:
    """The regions, and with which keys their copies are encrypted, if they are."""
    asked = settings.encryption
    encryption = {"kms_keys": dict(asked.region_kms_keys)} if asked else None
    return {"regions": list(settings.publish.regions), "encryption": encryption}


def source_values(settings: Mapping[str, Any], source_ami: str) -> dict[str, Any]:
    """The template's own variable; None is what was not asked for."""
    spot = settings["spot"]
    return {
        "region": settings["region"],
        "source_ami": source_ami,
        "instance_types": settings["instance_types"],
        "name_prefix": settings["name_prefix"],
        "iam_profile": settings["iam_instance_profile"],
        "imds_support": IMDS_V2 if settings["require_imds_tokens"] else None,
        **_disk(settings["disk"], settings["encryption"]),
        **_network(settings["network"]),
        **_auth(settings["auth"]),
        # `auto` is the plugin's word for the on-demand price.
        "spot_price": None if spot is None else spot["max_price"] or "auto",
    }


def _disk(disk: Mapping[str, Any], encryption: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "disk_size_gb": disk["size_gb"],
        "disk_type": disk["type"],
        "disk_iops": disk["iops"],
        "disk_mib_s": disk["throughput"],
        "encrypted": True if encryption is not None else None,
        "kms_key": encryption["kms_key"] if encryption is not None else None,
    }


def _network(network: Mapping[str, Any]) -> dict[str, Any]:
    own = network["security_group_ids"]
    return {
        "vpc_id": network["vpc_id"],
        "subnet_id": network["subnet_id"],
        "group_ids": own or None,
        "allowed_cidrs": None if own else network["allowed_cidrs"],
        "public_address": network["public_address"],
        # Left out, the plugin takes the public address, and the private one of a machine that has no other.
        "interface": "private_ip" if network["reach_by"] == "private" else None,
    }


def _auth(auth: Mapping[str, Any]) -> dict[str, Any]:
    role = auth["assume_role"] or {"role_arn": None, "session_name": None}
    return {"profile": auth["profile"], "role_arn": role["role_arn"], "role_session": role["session_name"]}
