"""The request behind a spot instance: moto starts an instance for each of its own, and here the instance is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moto.ec2.models.spot_requests import SpotInstanceRequest

from imagegen.rehearsal.clouds.aws import moto_call

if TYPE_CHECKING:
    from collections.abc import Mapping

_OVER = ("shutting-down", "terminated")


class Request(SpotInstanceRequest):
    """A one-time request, which is closed as soon as its instance is gone. Nobody tags it but who asks for that."""

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
        return "closed" if self._started.state in _OVER else self._state

    @state.setter
    def state(self, value: str) -> None:
        self._state = value


def requested(region: str, instance_id: str, launch: Mapping[str, str]) -> None:
    """Make the request of a spot instance that has just started; the instance names it."""
    backend = moto_call.ec2(region)
    instance = backend.get_instance(instance_id)
    made = Request(region, instance, launch)
    backend.spot_instance_requests[made.id] = made
    instance.spot_instance_request_id = made.id
    instance.lifecycle = "spot"
