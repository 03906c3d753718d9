"""What an operator's account has before a build, by the operator's own ids: nothing but what a config names is there.

moto makes its own ids: the edge changes the one for the other in what it is asked and in what it answers.
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
class Standing:
    """`private`: machines are reached by their private address, as from inside of their network."""

    vpc_id: str | None = None
    subnet_id: str | None = None
    security_group_ids: tuple[str, ...] = ()
    instance_profile: str | None = None
    private: bool = False


def furnish(region: str, standing: Standing, operator: str) -> dict[str, str]:
    """Make it in moto; the answer is moto's id by the operator's."""
    backend = moto_call.ec2(region)
    # A VPC without a subnet is of use to a build only as the region's default one.
    vpc = backend.create_vpc("10.20.0.0/16") if standing.subnet_id else backend.default_vpc
    ids: dict[str, str] = {}
    if standing.vpc_id:
        ids[standing.vpc_id] = vpc.id
    if standing.subnet_id:
        subnet = backend.create_subnet(vpc.id, "10.20.0.0/24", availability_zone=f"{region}a")
        ids[standing.subnet_id] = subnet.id
    for name in standing.security_group_ids:
        group = backend.create_security_group(name, "the operator's own", vpc_id=vpc.id)
        door = [{"CidrIp": f"{operator}/32"}]
        backend.authorize_security_group_ingress(group.id, "tcp", str(WINRM_PORT), str(WINRM_PORT), door, vpc_id=vpc.id)
        ids[name] = group.id
    if standing.instance_profile:
        iam = moto.iam.models.iam_backends[moto_call.ACCOUNT]["aws"]
        iam.create_instance_profile(standing.instance_profile, "/", [])
    return ids


def renamed(data: bytes, ids: Mapping[str, str]) -> bytes:
    """The text with each id changed for its other one; ids need no escaping in forms or in XML."""
    for one, other in ids.items():
        data = data.replace(one.encode(), other.encode())
    return data
