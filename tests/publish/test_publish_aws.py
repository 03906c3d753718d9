"""Publishing on AWS: each case is a state of the cloud, what is then asked of it, and what comes of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import botocore.exceptions
import pytest

from imagegen import errors
from imagegen.providers import CloudImage, Run
from imagegen.providers.aws.publish import publish
from imagegen.providers.aws.settings import Settings
from imagegen.providers.aws.source import build_settings, publish_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_ec2.client import EC2Client

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan

CASES = sorted((Path(__file__).parent / "aws").glob("*.json"))


class Cloud:
    """Images by region. Each has the states that successive looks see; the last one stays."""

    def __init__(self, case: dict[str, Any], image_id: str, journal: Any) -> None:  # noqa: ANN401 - conftest's Journal
        self.journal = journal
        self.copies = case.get("copies", {})
        self.tokens: dict[str, str] = {}
        self.requests: list[dict[str, Any]] = []
        self.regions: dict[str, list[dict[str, Any]]] = {}
        for region, images in case["cloud"].items():
            for image in images:
                tags = {"imagegen_image_id": image_id, **image.get("tags", {})}
                facts = {"StateReason": image["reason"]} if "reason" in image else {}
                facts |= image.get("facts", {})
                self.add(region, image["id"], image.get("name", "node-1"), image["states"], tags, facts)

    def add(
        self, region: str, ami: str, name: str, states: list[str], tags: dict[str, str], facts: dict[str, Any]
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
        shown = only["Values"][0] if only["Name"] == "image-id" else "this plan"
        self._cloud.journal.note(f"look in {self._region} for {shown}")
        found = []
        for image in self._cloud.regions.get(self._region, []):
            tags = {tag["Key"]: tag["Value"] for tag in image["Tags"]}
            value = image["ImageId"] if only["Name"] == "image-id" else tags.get(only["Name"].removeprefix("tag:"))
            if value in only["Values"]:
                states = image["states"]
                state = states.pop(0) if len(states) > 1 else states[0]
                found.append(
                    {key: copy.deepcopy(part) for key, part in image.items() if key != "states"} | {"State": state}
                )
        return {"Images": [image for image in found if image["State"] != "unseen"]}

    def copy_image(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - EC2's own parameters, looked at below
        cloud = self._cloud
        cloud.journal.note(f"copy {request['SourceImageId']} from {request['SourceRegion']} to {self._region}")
        cloud.requests.append(request)
        outcome = cloud.copies[self._region]
        if "error" in outcome:
            answer = {"Error": outcome["error"], "ResponseMetadata": {"RequestId": "req-42"}}
            raise botocore.exceptions.ClientError(cast("Any", answer), "CopyImage")
        token = request["ClientToken"]
        if token not in cloud.tokens:
            cloud.tokens[token] = f"ami-copy-{self._region}-{len(cloud.tokens) + 1}"
            tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
            facts = {"StateReason": outcome["reason"]} if "reason" in outcome else {}
            cloud.add(self._region, cloud.tokens[token], request["Name"], outcome["states"], tags, facts)
        return {"ImageId": cloud.tokens[token]}

    def modify_image_attribute(self, *, ImageId: str, ImdsSupport: dict[str, str]) -> None:
        self._cloud.journal.note(f"require {ImdsSupport['Value']} of {ImageId} in {self._region}")


def _settings(regions: list[str], **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401 - as a config has them
    asked = Settings.model_validate({"region": "us-east-1", "publish": {"regions": regions}, **settings})
    return build_settings(asked), publish_settings(asked)


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_publish(
    file: Path,
    make_plan: Callable[..., BuildPlan],
    console: Console,
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    case = json.loads(file.read_text())
    plan = make_plan("aws", *_settings(case["regions"], **case.get("settings", {})))
    cloud = Cloud(case, plan.image_id, journal)
    run = Run({}, case.get("labels", {}), "2026-11-18T10:00:00Z")
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
    source = {tag["Key"]: tag["Value"] for tag in cloud.regions["us-east-1"][0]["Tags"]}
    for request in cloud.requests:
        kinds = {item["ResourceType"]: item["Tags"] for item in request["TagSpecifications"]}
        worn = [{"Key": key, "Value": value} for key, value in source.items() if not key.startswith("aws:")]
        assert kinds == {"image": worn, "snapshot": worn}
        assert request["Name"] == "node-1"
        assert len(request["ClientToken"]) <= 64
    asked_for = [
        {key: request[key] for key in ("Encrypted", "KmsKeyId") if key in request} for request in cloud.requests
    ]
    assert asked_for == expected.get("encryption", [{} for _ in cloud.requests])


def test_two_runs_that_race_make_one_copy_and_a_failed_copy_is_not_given_back(
    make_plan: Callable[..., BuildPlan],
    console: Console,
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    plan = make_plan("aws", *_settings(["eu-west-1"]))
    source = {"id": "ami-source", "states": ["available"]}
    case = {"cloud": {"us-east-1": [source]}, "copies": {"eu-west-1": {"states": ["unseen", "available"]}}}
    cloud = Cloud(case, plan.image_id, journal)
    run = Run({}, {}, "2026-11-18T10:00:00Z")
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
