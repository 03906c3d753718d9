"""The resources in the account before a build: only those that the config names, with the ids in the config.

moto assigns its own ids. Therefore ids are replaced in requests and in answers.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import moto.iam.models

from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.network.machine import WINRM_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class ExistingResources:
    """The ids and names in the config. With `private`, Packer connects to private addresses."""

    vpc_id: str | None = None
    subnet_id: str | None = None
    security_group_ids: tuple[str, ...] = ()
    instance_profile: str | None = None
    private: bool = False


def create_resources(region: str, existing: ExistingResources, operator: str) -> dict[str, str]:
    """Create the resources in moto. Returns moto's ids by those in the config."""
    backend = moto_call.ec2(region)
    # If the config has no subnet, its VPC must be the default VPC of the region.
    vpc = backend.create_vpc("10.20.0.0/16") if existing.subnet_id else backend.default_vpc
    ids: dict[str, str] = {}
    if existing.vpc_id:
        ids[existing.vpc_id] = vpc.id
    if existing.subnet_id:
        subnet = backend.create_subnet(vpc.id, "10.20.0.0/24", availability_zone=f"{region}a")
        ids[existing.subnet_id] = subnet.id
    for name in existing.security_group_ids:
        group = backend.create_security_group(name, "the operator's own", vpc_id=vpc.id)
        ports, ranges = [str(WINRM_PORT)] * 2, [{"CidrIp": f"{operator}/32"}]
        backend.authorize_security_group_ingress(group.id, "tcp", *ports, ranges, vpc_id=vpc.id)
        ids[name] = group.id
    if existing.instance_profile:
        iam = moto.iam.models.iam_backends[moto_call.ACCOUNT]["aws"]
        iam.create_instance_profile(existing.instance_profile, "/", [])
    return ids


def replace_ids(data: bytes, ids: Mapping[str, str]) -> bytes:
    """Replace each id with the other one. Ids need no escaping in forms or in XML."""
    for old, new in ids.items():
        data = data.replace(old.encode(), new.encode())
    return data
