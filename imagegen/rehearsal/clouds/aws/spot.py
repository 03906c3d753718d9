"""The request of a spot instance. moto's own requests start an instance, but here the instance exists already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moto.ec2.models.spot_requests import SpotInstanceRequest

from imagegen.rehearsal.clouds.aws import moto_call

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENDED_STATES = ("shutting-down", "terminated")


class SpotRequest(SpotInstanceRequest):
    """A one-time request without tags, which is closed as soon as its instance ends."""

    def __init__(self, region: str, instance: moto_call.Moto, launch: Mapping[str, str]) -> None:
        self._started = instance
        self._state = "open"
        super().__init__(
            moto_call.ec2(region),
            f"sir-{instance.id.removeprefix('i-')[:8]}",
            price=launch.get("InstanceMarketOptions.SpotOptions.MaxPrice", ""),
            image_id=instance.image_id,
            spot_instance_type="one-time",
            valid_from=None,
            valid_until=None,
            launch_group=None,
            availability_zone_group=None,
            key_name=instance.key_name,
            security_groups=[],
            user_data=None,
            instance_type=instance.instance_type,
            placement=None,
            kernel_id=None,
            ramdisk_id=None,
            monitoring_enabled=False,
            subnet_id=instance.subnet_id,
            tags={},
            spot_fleet_id=None,
            instance_interruption_behaviour=None,
        )

    def launch_instance(self) -> moto_call.Moto:
        return self._started

    @property
    def state(self) -> str:
        return "closed" if self._started.state in _ENDED_STATES else self._state

    @state.setter
    def state(self, value: str) -> None:
        self._state = value


def add_request(region: str, instance_id: str, launch: Mapping[str, str]) -> None:
    """Add the request of a spot instance that has just started."""
    backend = moto_call.ec2(region)
    instance = backend.get_instance(instance_id)
    request = SpotRequest(region, instance, launch)
    backend.spot_instance_requests[request.id] = request
    instance.spot_instance_request_id = request.id
    instance.lifecycle = "spot"
