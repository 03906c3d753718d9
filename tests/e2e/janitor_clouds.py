"""What each cloud of a rehearsal holds, told by its own state and not by its API, and what other people have in it."""

from __future__ import annotations

import urllib.parse
from typing import TYPE_CHECKING, Any, Protocol

from imagegen.providers.tags import EXPIRES_AT, IMAGE_ID, RUN_ID
from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.base_images import DEFAULT_IMAGES, base_ami_id
from imagegen.rehearsal.clouds.aws.cloud import Aws
from imagegen.rehearsal.clouds.azure import groups, vaults
from imagegen.rehearsal.clouds.azure.cloud import Azure
from imagegen.rehearsal.clouds.azure.resources import GroupId, Resource, new_resource
from imagegen.rehearsal.network.messages import Request
from tests.e2e.rehearsal_support import cloud_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.sandbox import Sandbox

    Everything = dict[tuple[str, str], tuple[str, dict[str, str]]]

LIVING = "20261118t000000z-11ffee"
ELSEWHERE = "20261118t000000z-e15e00"
LONG_AGO, FAR_OFF = "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z"
_REGION = "us-east-1"


class World(Protocol):
    """A cloud's state: everything by kind and id, each with its state and its tags."""

    untagged: frozenset[str]
    """The kinds that the cloud makes by itself, without tags."""

    def __init__(self, sandbox: Sandbox, living_until: str) -> None: ...

    def everything(self) -> Everything: ...

    def is_finished(self, made: Everything) -> bool:
        """Whether this is a finished image with what belongs to it, and nothing else."""


class AwsWorld:
    # Packer tags the request of a fleet's instance once it knows it, and the snapshot of a copy once that is there.
    untagged: frozenset[str] = frozenset({"spot request", "snapshot"})

    def __init__(self, sandbox: Sandbox, living_until: str) -> None:
        self._sandbox = sandbox
        self._ask("DescribeRegions")
        self._ec2 = moto_call.ec2(_REGION)
        for tags in ({}, *_foreign(living_until)):
            self._furnish(tags)
        self._ask("CreateKeyPair", KeyName="packer_11111111-2222-3333-4444-555555555555")
        self._ask("CreateSecurityGroup", GroupName="packer_somebodys", GroupDescription="Temporary group for Packer")
        # An image as Packer left it finished, long ago, and disabled by its owner since.
        owned = {RUN_ID: LIVING, EXPIRES_AT: "never", IMAGE_ID: "0"}
        finished = self._image("capa-ami-windows-2022-v1.35.0-20260101000000", owned)
        self._ec2.amis[finished].state = "disabled"

    def everything(self) -> Everything:
        ec2 = self._ec2
        instances = [each for reservation in ec2.reservations.values() for each in reservation.instances]
        security_groups = [group for groups in ec2.groups.values() for group in groups.values()]
        requests = [each for each in ec2.spot_instance_requests.values() if each.state != "closed"]
        kinds = {
            "instance": [each for each in instances if each.state != "terminated"],
            "volume": ec2.volumes.values(),
            "snapshot": ec2.snapshots.values(),
            "image": ec2.amis.values(),
            "interface": ec2.enis.values(),
            "security group": security_groups,
            "key pair": ec2.key_pairs.values(),
            "launch template": ec2.launch_templates.values(),
            "spot request": requests,
        }
        return {
            (kind, each.id): (_state(each), {tag["key"]: tag["value"] for tag in each.get_tags()})
            for kind, found in kinds.items()
            for each in found
        }

    def is_finished(self, made: Everything) -> bool:
        images = [self._ec2.amis[key] for kind, key in made if kind == "image"]
        whole = {("image", each.id) for each in images} | {("snapshot", each.ebs_snapshot.id) for each in images}
        return [each.state for each in images] == ["available"] and set(made) == whole

    def _furnish(self, tags: Mapping[str, str]) -> None:
        group = self._ec2.create_security_group(f"of {tags.get(RUN_ID)}", "theirs", tags=dict(tags))
        volume = self._ec2.create_volume(8, f"{_REGION}a")
        volume.add_tags(tags)
        self._ec2.create_snapshot(volume.id, "before the change of ami-00000000000000000").add_tags(tags)
        self._ec2.create_key_pair(f"of {tags.get(RUN_ID)}", "rsa", tags=dict(tags))
        self._instance(group.id, tags)

    def _instance(self, group: str, tags: Mapping[str, str]) -> str:
        backend = self._ec2
        image = base_ami_id(_REGION, DEFAULT_IMAGES[0].name)
        reservation = backend.run_instances(
            image,
            1,
            "",
            [],
            instance_type="m6i.large",
            is_instance_type_default=False,
            security_group_ids=[group],
            tags={"instance": dict(tags), "volume": dict(tags)},
        )
        return str(reservation.instances[0].id)

    def _image(self, name: str, tags: Mapping[str, str]) -> str:
        group = self._ec2.create_security_group("of the image", "theirs")
        made = self._ec2.create_image(self._instance(group.id, {}), name, "", [])
        made.add_tags(tags)
        made.ebs_snapshot.add_tags(tags)
        return str(made.id)

    def _ask(self, action: str, **fields: str) -> None:
        headers = {
            "authorization": f"AWS4-HMAC-SHA256 Credential=AKIA/20261118/{_REGION}/ec2/aws4_request, x",
            "content-type": "application/x-www-form-urlencoded; charset=utf-8",
        }
        body = urllib.parse.urlencode({"Action": action, "Version": "2016-11-15", **fields}).encode()
        aws = cloud_of(self._sandbox.network, Aws)
        answer = aws(Request("POST", f"ec2.{_REGION}.amazonaws.com", "/", {}, headers, body, "/"))
        assert answer.status == 200, answer.body


class AzureWorld:
    # The disk of a machine, what is below another resource, and the record of a deployment.
    untagged = frozenset(
        {"Microsoft.Compute/disks", "Microsoft.KeyVault/vaults/secrets", "Microsoft.Resources/deployments"}
    )

    def __init__(self, sandbox: Sandbox, living_until: str) -> None:
        self._state = cloud_of(sandbox.network, Azure)._state
        for number, tags in enumerate(({}, *_foreign(living_until))):
            group = self._group(f"pkr-Resource-Group-somebody{number:02}", tags)
            self._put(group, "Microsoft.Network/virtualNetworks", f"pkrvnsomebody{number:02}", tags)
            vault = self._put(group, vaults.VAULT, f"pkrkvsomebody{number:02}", tags)
            vaults.soft_delete(self._state, vault)
        expired = {RUN_ID: ELSEWHERE, EXPIRES_AT: LONG_AGO, IMAGE_ID: "0"}
        # A vault of a dead run that nobody may purge: it goes by itself.
        home = self._group("elsewhere", {})
        protected = self._put(home, vaults.VAULT, "pkrkvprotected1", expired)
        protected["properties"]["enablePurgeProtection"] = True
        vaults.soft_delete(self._state, protected)
        # Not Packer's by its name, whatever it wears; and a version that is finished and was never published.
        self._put(self._group("production", expired), "Microsoft.Network/virtualNetworks", "backbone", expired)
        [definition] = self._state.resources.of_type("Microsoft.Compute/galleries/images")
        version = {"id": f"{definition['id']}/versions/2026.101.0", "name": "2026.101.0", "tags": expired}
        self._state.resources.put(
            {
                **version,
                "type": "Microsoft.Compute/galleries/images/versions",
                "location": definition["location"],
                "properties": {"provisioningState": "Succeeded", "publishingProfile": {"targetRegions": []}},
            }
        )

    def everything(self) -> Everything:
        found: list[Resource] = [*self._state.resources.below("/subscriptions"), *self._state.deleted_vaults.values()]
        return {
            (each["type"], each["id"]): (
                each.get("properties", {}).get("provisioningState", ""),
                each.get("tags") or each.get("properties", {}).get("tags") or {},
            )
            for each in found
        }

    def is_finished(self, made: Everything) -> bool:
        [((kind, _), (state, _))] = made.items()
        return kind == "Microsoft.Compute/galleries/images/versions" and state == "Succeeded"

    def _group(self, name: str, tags: Mapping[str, str]) -> GroupId:
        group = GroupId(self._state.application.subscription, name)
        self._state.resources.put(groups.make(group, "westeurope", dict(tags)))
        return group

    def _put(self, group: GroupId, kind: str, name: str, tags: Mapping[str, str]) -> Resource:
        return self._state.resources.put(new_resource(group, kind, name, "westeurope", {}, dict(tags)))


def _foreign(living_until: str) -> tuple[dict[str, str], ...]:
    """The tags of a run of this machine that is going on, and of one of another machine."""
    return (
        {RUN_ID: LIVING, EXPIRES_AT: living_until, IMAGE_ID: "0"},
        {RUN_ID: ELSEWHERE, EXPIRES_AT: FAR_OFF, IMAGE_ID: "0"},
    )


def _state(resource: Any) -> str:  # noqa: ANN401 - moto's models have no types
    return str(getattr(resource, "state", ""))


WORLDS: dict[str, type[World]] = {"aws": AwsWorld, "azure": AzureWorld}
