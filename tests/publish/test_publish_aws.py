"""Publishing on AWS: each case is a state of the cloud, what is then asked of it, and what comes of it."""

from __future__ import annotations

import copy
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import botocore.exceptions
import pytest

from imagegen.base import errors
from imagegen.providers import CloudImage, RunFacts
from imagegen.providers.aws.publish import publish
from imagegen.providers.aws.settings import Settings
from imagegen.providers.tags import EXPIRES_AT, RUN_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_ec2.client import EC2Client

    from imagegen.base.console import Console
    from imagegen.plan.model import BuildPlan

CASES = sorted((Path(__file__).parent / "aws").glob("*.json"))


def fault_of(answer: dict[str, Any], operation: str) -> Exception:
    """The SDK's error for EC2's code and status, or for a connection that breaks in the named way."""
    if answer.get("connection") == "reset":
        return botocore.exceptions.ConnectionClosedError(endpoint_url="https://ec2.amazonaws.com/")
    if answer.get("connection") == "unknown host":
        error = botocore.exceptions.EndpointConnectionError(endpoint_url="https://ec2.us-west-9.amazonaws.com/")
        error.__context__ = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return error
    told = {"Code": answer["code"], "Message": answer.get("message", "no")}
    facts = {"RequestId": "req-42", "HTTPStatusCode": answer.get("status", 400)}
    return botocore.exceptions.ClientError(cast("Any", {"Error": told, "ResponseMetadata": facts}), operation)


class Cloud:
    """Images by region. Each has the states that successive looks see; the last one stays.

    Instead of a state, and before a region's list, its copy or what settles that, there may be an error. Of client
    tokens and names it holds what EC2's API reference does: the same token gets the same answer, also after that image
    was deregistered, and IdempotentParameterMismatch for another request; a name is taken once in a region. `kept` are
    answers of tokens of earlier runs, whose images are gone.
    """

    def __init__(self, case: dict[str, Any], image_id: str, journal: Any) -> None:  # noqa: ANN401 - conftest's Journal
        self.journal = journal
        self.copies = case.get("copies", {})
        self.lists = case.get("lists", {})
        self.settling: dict[str, list[dict[str, Any]]] = case.get("settling", {})
        self.tokens: dict[tuple[str, str], tuple[dict[str, Any], str]] = {}
        self.requests: list[dict[str, Any]] = []
        self.tagged: list[dict[str, Any]] = []
        self.regions: dict[str, list[dict[str, Any]]] = {}
        for region, images in case["cloud"].items():
            for image in images:
                tags = {"imagegen_image_id": image_id, **image.get("tags", {})}
                facts = {"StateReason": image["reason"]} if "reason" in image else {}
                facts |= image.get("facts", {})
                tags = {name: value for name, value in tags.items() if value is not None}
                self.add(region, image["id"], image.get("name", "node-1"), image["states"], tags, facts)

    def add(
        self, region: str, ami: str, name: str, states: list[Any], tags: dict[str, str], facts: dict[str, Any]
    ) -> None:
        known = self.regions.setdefault(region, [])
        image: dict[str, Any] = {
            "ImageId": ami,
            "Name": name,
            "CreationDate": f"2026-11-18T00:00:{len(known):02}.000Z",
            "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            "states": list(states),
        }
        known.append(image | facts)

    def client(self, region: str) -> EC2Client:
        return cast("EC2Client", RegionalClient(self, region))


class RegionalClient:
    """The calls of EC2 that publishing may make; any other is an AttributeError."""

    def __init__(self, cloud: Cloud, region: str) -> None:
        self._cloud = cloud
        self._region = region

    def describe_images(self, *, Owners: list[str], Filters: list[dict[str, Any]]) -> dict[str, Any]:
        assert Owners == ["self"]
        (only,) = Filters
        kind, (value,) = only["Name"], only["Values"]
        self._cloud.journal.note(f"look in {self._region} for {'this plan' if kind.startswith('tag:') else value}")
        if kind.startswith("tag:") and (faults := self._cloud.lists.get(self._region)):
            raise fault_of(faults.pop(0), "DescribeImages")
        found = []
        for image in self._cloud.regions.get(self._region, []):
            tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
            facts = {f"tag:{key}": tag for key, tag in tags.items()}
            if value == (facts | {"image-id": image["ImageId"], "name": image["Name"]}).get(kind):
                states = image["states"]
                state = states.pop(0) if len(states) > 1 else states[0]
                if isinstance(state, dict):
                    raise fault_of(state, "DescribeImages")
                found.append(
                    {key: copy.deepcopy(part) for key, part in image.items() if key != "states"} | {"State": state}
                )
        return {"Images": [image for image in found if image["State"] != "unseen"]}

    def copy_image(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - EC2's own parameters, looked at below
        cloud, outcome = self._cloud, self._cloud.copies[self._region]
        cloud.journal.note(f"copy {request['SourceImageId']} from {request['SourceRegion']} to {self._region}")
        cloud.requests.append(request)
        if faults := outcome.get("errors"):
            raise fault_of(faults.pop(0) if len(faults) > 1 or "states" in outcome else faults[0], "CopyImage")
        token = (self._region, request["ClientToken"])
        if token not in cloud.tokens:
            cloud.tokens[token] = (request, self._make(request, outcome))
        asked, ami = cloud.tokens[token]
        if asked != request:
            raise fault_of({"code": "IdempotentParameterMismatch"}, "CopyImage")
        return {"ImageId": ami}

    def _make(self, request: dict[str, Any], outcome: dict[str, Any]) -> str:
        if outcome.get("kept"):
            gone: str = outcome["kept"].pop(0)
            return gone
        cloud = self._cloud
        # Whether an image that failed keeps its name is written nowhere: a case may say that it does.
        frees = () if outcome.get("failed_keep_names") else ("failed",)
        for image in cloud.regions.get(self._region, []):
            if image["Name"] == request["Name"] and image["states"][0] not in frees:
                raise fault_of({"code": "InvalidAMIName.Duplicate"}, "CopyImage")
        ami = f"ami-copy-{self._region}-{len(cloud.tokens) + 1}"
        tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
        facts = {"StateReason": outcome["reason"]} if "reason" in outcome else {}
        facts |= outcome.get("facts", {})
        worn = {} if outcome.get("drops_tags") else tags
        cloud.add(self._region, ami, request["Name"], outcome["states"], worn, facts)
        return ami

    def create_tags(self, *, Resources: list[str], Tags: list[dict[str, str]]) -> dict[str, Any]:
        self._cloud.journal.note(f"tag {', '.join(Resources)} in {self._region}")
        self._fail("CreateTags")
        self._cloud.tagged += Tags
        keys = {tag["Key"] for tag in Tags}
        for image in self._cloud.regions[self._region]:
            if image["ImageId"] in Resources:
                image["Tags"] = [tag for tag in image["Tags"] if tag["Key"] not in keys] + Tags
        return {}

    def modify_image_attribute(self, *, ImageId: str, ImdsSupport: dict[str, str]) -> dict[str, Any]:
        self._cloud.journal.note(f"require {ImdsSupport['Value']} of {ImageId} in {self._region}")
        self._fail("ModifyImageAttribute")
        return {}

    def _fail(self, operation: str) -> None:
        if faults := self._cloud.settling.get(operation):
            raise fault_of(faults.pop(0), operation)


def _settings(regions: list[str], **settings: Any) -> Settings:  # noqa: ANN401 - as a config has them
    return Settings.model_validate({"region": "us-east-1", "publish": {"regions": regions}, **settings})


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_publish(
    file: Path,
    make_plan: Callable[..., BuildPlan[Settings]],
    console: Console,
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    case = json.loads(file.read_text())
    plan = make_plan("aws", _settings(case["regions"], **case.get("settings", {})), minutes=case.get("minutes", 360))
    cloud = Cloud(case, plan.image_id, journal)
    run = RunFacts({}, case.get("labels", {}), "2026-11-18T10:00:00Z", "run-2", "2026-11-18T18:00:00Z")
    built = CloudImage("ami-source", "us-east-1", "node-1", "available")
    expected = case["expect"]

    if "error" in expected:
        with pytest.raises(errors.ImagegenError) as raised:
            publish(cloud.client, plan, built, run, console, journal.clock())
        error = raised.value
        assert [type(error).__name__, error.message, error.hint, list(error.details)] == expected["error"]
    else:
        published = publish(cloud.client, plan, built, run, console, journal.clock())
        assert [[image.region, image.id, image.state] for image in published.images] == expected["images"]
        assert (published.version, published.made) == ("node-1", expected["made"])

    assert journal.lines == expected["calls"]
    assert {tag["Key"] for tag in cloud.tagged} == set(expected.get("tagged", []))
    assert [tag["Value"] for tag in cloud.tagged if tag["Key"] == RUN_ID] == expected.get("run_ids", [])
    if "expires" in expected:
        assert [tag["Value"] for tag in cloud.tagged if tag["Key"] == EXPIRES_AT] == expected["expires"]
    source = {tag["Key"]: tag["Value"] for tag in cloud.regions["us-east-1"][0]["Tags"]}
    for request in cloud.requests:
        kinds = {item["ResourceType"]: item["Tags"] for item in request["TagSpecifications"]}
        kept = {key: value for key, value in source.items() if not key.startswith("aws:")}
        worn = [{"Key": key, "Value": value} for key, value in sorted({**kept, "imagegen_report": "accepted"}.items())]
        assert kinds == {"image": worn, "snapshot": worn}
        assert request["Name"] == "node-1"
        assert len(request["ClientToken"]) <= 64
    asked_for = [
        {key: request[key] for key in ("Encrypted", "KmsKeyId") if key in request} for request in cloud.requests
    ]
    assert asked_for == expected.get("encryption", [{} for _ in cloud.requests])


def test_two_runs_that_race_make_one_copy_and_a_failed_copy_is_not_given_back(
    make_plan: Callable[..., BuildPlan[Settings]],
    console: Console,
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    plan = make_plan("aws", _settings(["eu-west-1"]))
    source = {"id": "ami-source", "states": ["available"]}
    case = {"cloud": {"us-east-1": [source]}, "copies": {"eu-west-1": {"states": ["unseen", "available"]}}}
    cloud = Cloud(case, plan.image_id, journal)
    run = RunFacts({}, {}, "2026-11-18T10:00:00Z")
    built = CloudImage("ami-source", "us-east-1", "node-1", "available")

    def copies() -> int:
        return len(cloud.tokens)

    publish(cloud.client, plan, built, run, console, journal.clock())
    cloud.regions["eu-west-1"][0]["states"] = ["unseen", "available"]
    publish(cloud.client, plan, built, run, console, journal.clock())
    assert copies() == 1
    cloud.regions["eu-west-1"][0]["states"] = ["failed"]
    publish(cloud.client, plan, built, run, console, journal.clock())
    assert copies() == 2
