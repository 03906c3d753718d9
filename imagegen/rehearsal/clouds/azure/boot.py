"""What a machine that Azure starts from the image finds around it."""

from __future__ import annotations

import ipaddress
import secrets
import string
import uuid
from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Instance
from imagegen.rehearsal.clouds.azure import metadata, wireserver
from imagegen.rehearsal.clouds.azure.provisioning_dvd import DRIVE, make_dvd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.model import Report
    from imagegen.rehearsal.network.messages import Host

_WIRESERVER_OPTION = 245
_TIMED_OUT = (
    "OSProvisioningTimedOut: OS Provisioning for VM '{}' did not finish in the allotted time. The VM may still finish "
    "provisioning successfully. Please check provisioning state later. Also, make sure the image has been properly "
    "prepared (generalized)."
)
_FAILED = (
    "OSProvisioningClientError: OS provisioning for VM '{}' failed. Error details: {} Make sure the image has been "
    "properly prepared (generalized)."
)


def make_instance(user_data: bytes) -> Instance:
    """A machine as cluster providers make it: a short name that ends at random, an administrator, and custom data."""
    ending = "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(5))
    name = f"node-{ending}"
    return Instance(
        host_name=name,
        instance_id=f"{uuid.uuid4()}._{name}",
        user_data=user_data,
        admin_name="capi",
        # The first characters are of the kinds that Azure and Windows demand.
        admin_password=f"aA1-{secrets.token_urlsafe(24)}",
    )


class AzurePlatform:
    """The wireserver with the DHCP option that names it, the provisioning DVD, and the metadata."""

    def __init__(self, instance: Instance) -> None:
        self._name = instance.host_name
        self._wireserver = wireserver.WireServer(instance)
        self.hosts: Mapping[str, Host] = {
            wireserver.ADDRESS: self._wireserver,
            metadata.ADDRESS: metadata.InstanceMetadata(instance),
        }
        self.dhcp_options: Mapping[int, bytes] = {
            _WIRESERVER_OPTION: ipaddress.IPv4Address(wireserver.ADDRESS).packed,
        }
        self.drives: Mapping[str, Mapping[str, bytes]] = {DRIVE: make_dvd(instance)}
        self.restricted: Mapping[str, Sequence[int]] = {wireserver.ADDRESS: wireserver.SECRET_PORTS}

    @property
    def reports(self) -> Sequence[Report]:
        return tuple(self._wireserver.reports)

    @property
    def thumbprints(self) -> Sequence[str]:
        """The thumbprints of the certificates that the machine reported for Remote Desktop."""
        return tuple(self._wireserver.thumbprints)

    def refusal(self) -> str | None:
        """The first report that ends provisioning counts. Without one, Azure gives up after its time."""
        for report in self.reports:
            if report.state == wireserver.READY:
                return None
            if report.detail.startswith(wireserver.FAILED):
                return _FAILED.format(self._name, f"{report.detail}.")
        return _TIMED_OUT.format(self._name)
