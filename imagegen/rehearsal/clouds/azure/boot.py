"""What a machine that Azure starts from the image finds around it."""

from __future__ import annotations

import ipaddress
import secrets
import string
import uuid
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.rehearsal.boot.model import Instance
from imagegen.rehearsal.clouds.azure import metadata, wireserver
from imagegen.rehearsal.clouds.azure.provisioning_dvd import DRIVE, make_dvd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.rehearsal.boot.model import Clock
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

    def __init__(self, instance: Instance, clock: Clock) -> None:
        self._name = instance.host_name
        self._wireserver = wireserver.WireServer(instance, clock)
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
    def reports(self) -> Sequence[wireserver.Report]:
        """What the machine has reported so far, in order."""
        return tuple(self._wireserver.reports)

    def refusal(self) -> str | None:
        """The first report that ends provisioning counts. Without one in its time, Azure gives up."""
        limit_s = table("machines")["provisioning"]["azure"]["limit_s"]
        for report in self.reports:
            if report.at_s > limit_s:
                late = f"{report.state} came {report.at_s:.0f} seconds after the machine's creation"
                return f"{_TIMED_OUT.format(self._name)} {late}, and Azure waits {limit_s} seconds."
            if report.state == wireserver.READY:
                return None
            if report.detail.startswith(wireserver.FAILED):
                return _FAILED.format(self._name, f"{report.detail}.")
        return _TIMED_OUT.format(self._name)
