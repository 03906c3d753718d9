"""Windows instances: the checks before their launch, their password, and whether their WinRM port is open."""

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


class AwsError(Exception):
    """A request that AWS rejects, with an error code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True)
class _LaunchedInstance:
    region: str
    instance_id: str
    identity: MachineIdentity


class Instances:
    """The launched instances by id. With `private`, Packer connects to their private addresses."""

    def __init__(self, *, private: bool = False, operator: str = OPERATOR_ADDRESS) -> None:
        self._private = private
        self._operator = operator
        self._launched: dict[str, _LaunchedInstance] = {}

    def check_launch(self, region: str, form: Mapping[str, str]) -> None:
        """Reject a launch that EC2 rejects and moto accepts."""
        backend = moto_call.ec2(region)
        image = form.get("ImageId", "")
        if image not in backend.amis:
            raise AwsError("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
        key = form.get("KeyName")
        if key is not None and key not in backend.key_pairs:
            raise AwsError("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
        instance_type = form.get("InstanceType", "")
        if instance_type not in INSTANCE_TYPES:
            raise AwsError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
        if len(base64.b64decode(form.get("UserData", ""))) > USER_DATA_LIMIT:
            raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")

    def check_group_unused(self, region: str, form: Mapping[str, str]) -> None:
        """Reject the deletion of a security group that a network interface uses."""
        group_id = form.get("GroupId", "")
        interfaces = moto_call.ec2(region).enis.values()
        if any(group.id == group_id for interface in interfaces for group in interface.group_set):
            raise AwsError("DependencyViolation", f"resource {group_id} has a dependent object")

    def register_launch(self, region: str, form: Mapping[str, str], answer: bytes) -> list[MachineIdentity]:
        """Register the instances in an answer of RunInstances. Returns their identities."""
        machines = []
        for match in _INSTANCE_ID.findall(answer):
            instance = moto_call.ec2(region).get_instance(match.decode())
            image = moto_call.ec2(region).amis[instance.image_id]
            # moto ignores the tags, and keeps the interface of a terminated instance.
            for interface in instance.nics.values():
                interface.add_tags(tag_specifications(form).get("network-interface", {}))
                interface.delete_on_termination = True
            identity = MachineIdentity(
                cloud="aws",
                name=instance.id,
                address=instance.private_ip if self._private else instance.public_ip or instance.private_ip,
                image=image.name,
                username="Administrator",
                # Follows Windows' rules for passwords, like those of EC2Launch.
                password=f"{secrets.token_urlsafe(24)}aA1!",
                user_data=base64.b64decode(form.get("UserData", "")),
            )
            self._launched[instance.id] = _LaunchedInstance(region, instance.id, identity)
            machines.append(identity)
        return machines

    def encrypt_password(self, region: str, instance_id: str) -> str:
        """Encrypt the password with the public key of the instance's key pair."""
        launched = self._launched.get(instance_id)
        if launched is None or launched.region != region:
            raise AwsError("InvalidInstanceID.NotFound", f"The instance ID '{instance_id}' does not exist")
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
        """Why the WinRM port of this address is closed: "" if it is open, None if no instance has the address."""
        for launched in self._launched.values():
            if launched.identity.address == address:
                instance = moto_call.ec2(launched.region).get_instance(launched.instance_id)
                return _why_closed(instance, launched.identity, self._operator)
        return None


def _why_closed(instance: moto_call.Moto, identity: MachineIdentity, operator: str) -> str:
    if instance.state != "running":
        return f"instance {instance.id} is {instance.state}"
    if not identity.user_data:
        return f"instance {instance.id} has no user data that sets up WinRM"
    if b"<powershell" not in identity.user_data.lower():
        return f"the user data of {instance.id} has no <powershell> script"
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
