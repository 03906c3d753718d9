"""The Windows instances of a rehearsal: checks before they run, their password, and whether WinRM is reachable."""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import re
import secrets
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from moto.ec2.models.instance_types import INSTANCE_TYPES

from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.tagging import tag_specifications
from imagegen.rehearsal.network.machine import OPERATOR_ADDRESS, WINRM_PORT, MachineIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

USER_DATA_LIMIT = 16_384
_INSTANCE_ID = re.compile(rb"<instanceId>(i-[0-9a-f]+)</instanceId>")


class Refused(Exception):
    """What EC2 answers with an error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True)
class _Launched:
    region: str
    instance_id: str
    identity: MachineIdentity


class Instances:
    """The instances that were started, by id; `private`: they are reached by their private address, from `operator`."""

    def __init__(self, *, private: bool = False, operator: str = OPERATOR_ADDRESS) -> None:
        self._private = private
        self._operator = operator
        self._launched: dict[str, _Launched] = {}

    def check_launch(self, region: str, form: Mapping[str, str]) -> None:
        """What EC2 refuses and moto would let through."""
        backend = moto_call.ec2(region)
        image = form.get("ImageId", "")
        if image not in backend.amis:
            raise Refused("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
        key = form.get("KeyName")
        if key is not None and key not in backend.key_pairs:
            raise Refused("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
        kind = form.get("InstanceType", "")
        if kind not in INSTANCE_TYPES:
            raise Refused("InvalidParameterValue", f"Invalid value '{kind}' for InstanceType.")
        if len(base64.b64decode(form.get("UserData", ""))) > USER_DATA_LIMIT:
            raise Refused("InvalidParameterValue", "User data is limited to 16384 bytes")

    def check_group_unused(self, region: str, form: Mapping[str, str]) -> None:
        """A security group stays while a network interface is in it."""
        group = form.get("GroupId", "")
        if any(group == each.id for interface in moto_call.ec2(region).enis.values() for each in interface.group_set):
            raise Refused("DependencyViolation", f"resource {group} has a dependent object")

    def launched(self, region: str, form: Mapping[str, str], answer: bytes) -> list[MachineIdentity]:
        """The machines that RunInstances' answer names."""
        found = []
        for match in _INSTANCE_ID.findall(answer):
            instance = moto_call.ec2(region).get_instance(match.decode())
            image = moto_call.ec2(region).amis[instance.image_id]
            # moto forgets the tags, and keeps the interface of a terminated instance.
            for interface in instance.nics.values():
                interface.add_tags(tag_specifications(form).get("network-interface", {}))
                interface.delete_on_termination = True
            identity = MachineIdentity(
                cloud="aws",
                name=instance.id,
                address=instance.private_ip if self._private else instance.public_ip or instance.private_ip,
                image=image.name,
                username="Administrator",
                # Fits Windows' rules for a password, as EC2Launch's own does.
                password=f"{secrets.token_urlsafe(24)}aA1!",
                user_data=base64.b64decode(form.get("UserData", "")),
            )
            self._launched[instance.id] = _Launched(region, instance.id, identity)
            found.append(identity)
        return found

    def password_data(self, region: str, instance_id: str) -> str:
        """The password, readable only by whoever holds the private half of the instance's key pair."""
        launched = self._launched.get(instance_id)
        if launched is None or launched.region != region:
            raise Refused("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
        backend = moto_call.ec2(region)
        instance = backend.get_instance(instance_id)
        pair = backend.key_pairs.get(instance.key_name)
        if instance.platform != "windows" or pair is None:
            return ""
        public = load_ssh_public_key(pair.material_public)
        if not isinstance(public, rsa.RSAPublicKey):
            return ""
        return base64.b64encode(public.encrypt(launched.identity.password.encode(), padding.PKCS1v15())).decode()

    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of an address is shut; "" when it is open, None when no instance has the address."""
        for launched in self._launched.values():
            if launched.identity.address == address:
                instance = moto_call.ec2(launched.region).get_instance(launched.instance_id)
                return _closed(instance, launched.identity, self._operator)
        return None


def _closed(instance: moto_call.Moto, identity: MachineIdentity, operator: str) -> str:
    if instance.state != "running":
        return f"instance {instance.id} is {instance.state}"
    if not identity.user_data:
        return f"instance {instance.id} got no user data, so nothing set WinRM up"
    if b"<powershell" not in identity.user_data.lower():
        return f"the user data of {instance.id} holds no <powershell> bootstrap"
    groups = [group for nic in instance.nics.values() for group in nic.group_set] or instance.security_groups
    if not any(_admits(rule, operator) for group in groups for rule in group.ingress_rules):
        names = ", ".join(sorted({group.id for group in groups})) or "none"
        return f"security group {names} has no rule for TCP {WINRM_PORT} from {operator}"
    return ""


def _admits(rule: moto_call.Moto, operator: str) -> bool:
    if rule.ip_protocol not in ("tcp", "-1"):
        return False
    if rule.ip_protocol == "tcp" and not rule.from_port <= WINRM_PORT <= rule.to_port:
        return False
    cidr = rule.ip_range.get("CidrIp")
    return bool(cidr) and ipaddress.ip_address(operator) in ipaddress.ip_network(cidr, strict=False)
