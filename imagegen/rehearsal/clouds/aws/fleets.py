"""Fleets of one spot instance. moto ignores the network of a launch template, so a fleet becomes a plain launch."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from imagegen.rehearsal.clouds.aws.instances import AwsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA = "LaunchTemplateData."
_CONFIG = "LaunchTemplateConfigs.1."
_FLEET = "fleet-00000000-0000-4000-8000-000000000000"


class Fleets:
    """The launch templates by region and name."""

    def __init__(self) -> None:
        self._templates: dict[tuple[str, str], dict[str, str]] = {}

    def add_template(self, region: str, form: Mapping[str, str]) -> None:
        """Store the values of a launch template that are not empty."""
        data = {name.removeprefix(_DATA): value for name, value in form.items() if name.startswith(_DATA) and value}
        self._templates[region, form.get("LaunchTemplateName", "")] = data

    def make_launch(self, region: str, form: Mapping[str, str]) -> dict[str, str]:
        """Convert an instant fleet of one spot instance to a launch. A build uses no other fleets."""
        supported = {
            "Type": "instant",
            "TargetCapacitySpecification.TotalTargetCapacity": "1",
            "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
        }
        if any(form.get(name) != value for name, value in supported.items()):
            raise AwsError("InvalidFleetConfiguration", "A rehearsal supports only instant fleets of one spot instance")
        name = form.get(f"{_CONFIG}LaunchTemplateSpecification.LaunchTemplateName", "")
        if (region, name) not in self._templates:
            raise AwsError("InvalidLaunchTemplateName.NotFoundException", f"The launch template {name} does not exist")
        return {
            **self._templates[region, name],
            "InstanceType": form.get(f"{_CONFIG}Overrides.1.InstanceType", ""),
            "Action": "RunInstances",
            "Version": form.get("Version", ""),
            "MinCount": "1",
            "MaxCount": "1",
        }


def started_answer(instance_id: str, instance_type: str) -> bytes:
    """The answer of a fleet that started its instance."""
    return _answer(
        f"<fleetInstanceSet><item><instanceIds><item>{escape(instance_id)}</item></instanceIds>"
        f"<instanceType>{escape(instance_type)}</instanceType><lifecycle>spot</lifecycle></item></fleetInstanceSet><errorSet/>"
    )


def failed_answer(error: AwsError) -> bytes:
    """The answer of a fleet that could not start its instance. EC2 does not treat this as an error of the request."""
    return _answer(
        f"<fleetInstanceSet/><errorSet><item><errorCode>{escape(error.code)}</errorCode>"
        f"<errorMessage>{escape(error.message)}</errorMessage><lifecycle>spot</lifecycle></item></errorSet>"
    )


def _answer(content: str) -> bytes:
    return (
        '<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>00000000-0000-0000-0000-000000000000</requestId><fleetId>{_FLEET}</fleetId>"
        f"{content}</CreateFleetResponse>"
    ).encode()
