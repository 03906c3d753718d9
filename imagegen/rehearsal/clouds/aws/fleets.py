"""A fleet of one spot instance: moto's takes no network from a launch template, so it becomes a plain launch here."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from imagegen.rehearsal.clouds.aws.instances import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA = "LaunchTemplateData."
_CONFIG = "LaunchTemplateConfigs.1."
_FLEET = "fleet-00000000-0000-4000-8000-000000000000"


class Fleets:
    """The launch templates of a rehearsal, by region and name."""

    def __init__(self) -> None:
        self._templates: dict[tuple[str, str], dict[str, str]] = {}

    def template_made(self, region: str, form: Mapping[str, str]) -> None:
        """Remember what a template says; what it leaves empty it does not say."""
        said = {name.removeprefix(_DATA): value for name, value in form.items() if name.startswith(_DATA) and value}
        self._templates[region, form.get("LaunchTemplateName", "")] = said

    def launch_of(self, region: str, form: Mapping[str, str]) -> dict[str, str]:
        """The launch that an instant fleet of one spot instance comes to; any other fleet is none of a build's."""
        wanted = {
            "Type": "instant",
            "TargetCapacitySpecification.TotalTargetCapacity": "1",
            "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
        }
        if any(form.get(name) != value for name, value in wanted.items()):
            raise Refused("InvalidFleetConfiguration", "The rehearsal starts one spot instance at a time")
        name = form.get(f"{_CONFIG}LaunchTemplateSpecification.LaunchTemplateName", "")
        if (region, name) not in self._templates:
            raise Refused("InvalidLaunchTemplateName.NotFoundException", f"The launch template {name} does not exist")
        return {
            **self._templates[region, name],
            "InstanceType": form.get(f"{_CONFIG}Overrides.1.InstanceType", ""),
            "Action": "RunInstances",
            "Version": form.get("Version", ""),
            "MinCount": "1",
            "MaxCount": "1",
        }


def started(instance_id: str, kind: str) -> bytes:
    """The answer of a fleet that got its instance."""
    return _answer(
        f"<fleetInstanceSet><item><instanceIds><item>{escape(instance_id)}</item></instanceIds>"
        f"<instanceType>{escape(kind)}</instanceType><lifecycle>spot</lifecycle></item></fleetInstanceSet><errorSet/>"
    )


def not_started(refused: Refused) -> bytes:
    """The answer of a fleet that got none: EC2 calls that no error of the request."""
    return _answer(
        f"<fleetInstanceSet/><errorSet><item><errorCode>{escape(refused.code)}</errorCode>"
        f"<errorMessage>{escape(refused.message)}</errorMessage><lifecycle>spot</lifecycle></item></errorSet>"
    )


def _answer(content: str) -> bytes:
    return (
        '<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<requestId>00000000-0000-0000-0000-000000000000</requestId><fleetId>{_FLEET}</fleetId>"
        f"{content}</CreateFleetResponse>"
    ).encode()
