"""What is asked of AWS before a build: each case is what AWS answers, and what is said of it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError

from imagegen.providers.aws.checks import run_quick_checks
from imagegen.providers.aws.settings import Settings
from imagegen.providers.aws.thorough_checks import run_thorough_checks

if TYPE_CHECKING:
    from tests.doctor.conftest import Compare

CASES = sorted((Path(__file__).parent / "aws").glob("*.json"))
REQUEST = {"region": "us-east-1", "name": "Windows_Server-2022-*", "owner": "amazon"}
# An account in which everything is as it should be.
ANSWERS: dict[str, Any] = {
    "sts.get_caller_identity": {"Arn": "arn:aws:iam::111122223333:user/images"},
    "ec2.describe_regions": {
        "Regions": [
            {"RegionName": "us-east-1", "OptInStatus": "opt-in-not-required"},
            {"RegionName": "us-west-1", "OptInStatus": "opt-in-not-required"},
            {"RegionName": "us-west-2", "OptInStatus": "opt-in-not-required"},
            {"RegionName": "eu-south-1", "OptInStatus": "opted-in"},
            {"RegionName": "ap-east-1", "OptInStatus": "not-opted-in"},
        ]
    },
    "ec2.describe_vpcs": {"Vpcs": [{"VpcId": "vpc-0a000000000000000", "IsDefault": True}]},
    "ec2.describe_subnets": {
        "Subnets": [
            {
                "SubnetId": "subnet-0a000000000000000",
                "VpcId": "vpc-0a000000000000000",
                "AvailabilityZone": "us-east-1b",
            }
        ]
    },
    "ec2.describe_security_groups": {
        "SecurityGroups": [{"GroupId": "sg-0a000000000000000", "VpcId": "vpc-0a000000000000000"}]
    },
    "iam.get_instance_profile": {"InstanceProfile": {}},
    "ec2.describe_images": {
        "Images": [
            {
                "ImageId": "ami-1",
                "Name": "Windows_Server-2022-1",
                "CreationDate": "2026-11-11",
                "Platform": "windows",
                "RootDeviceName": "/dev/sda1",
            }
        ]
    },
    "ec2.describe_instance_type_offerings": {"InstanceTypeOfferings": [{"InstanceType": "m6i.large"}]},
    "ec2.describe_instance_types": {
        "InstanceTypes": [
            {"InstanceType": "m6i.large", "VCpuInfo": {"DefaultVCpus": 2}},
            {"InstanceType": "m6i.8xlarge", "VCpuInfo": {"DefaultVCpus": 32}},
            {"InstanceType": "g4dn.xlarge", "VCpuInfo": {"DefaultVCpus": 4}},
            {"InstanceType": "x2idn.16xlarge", "VCpuInfo": {"DefaultVCpus": 64}},
        ]
    },
    "service-quotas.get_service_quota": {"Quota": {"Value": 16.0, "QuotaName": "Running On-Demand instances"}},
    "kms.describe_key": {"KeyMetadata": {"KeyState": "Enabled", "KeySpec": "SYMMETRIC_DEFAULT"}},
    **{
        f"ec2.{operation}": {"error": ["DryRunOperation", "Request would have succeeded, but DryRun flag is set."]}
        for operation in (
            "copy_image",
            "create_fleet",
            "create_key_pair",
            "create_launch_template",
            "create_security_group",
        )
    },
    "ec2.run_instances": {"error": ["DryRunOperation", "Request would have succeeded, but DryRun flag is set."]},
}


class Account:
    """Answers by `service.operation`, or by that and `@region`; what would make something has to be a dry run."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = ANSWERS | answers
        self.calls: list[str] = []

    def client(self, service: str, region: str) -> Any:  # noqa: ANN401 - as the SDK's own
        return _Client(self, service, region)

    def answer(self, service: str, region: str, operation: str, request: dict[str, Any]) -> Any:  # noqa: ANN401 - any answer
        assert operation.startswith(("describe_", "get_")) or request["DryRun"] is True
        # A permission to tag is asked for with each request that makes something.
        assert request.get("DryRun") is None or request["TagSpecifications"][0]["Tags"]
        named = [*request.get("Filters", [])]
        told = [value for each in named for value in each["Values"]]
        told += [str(request[key]) for key in ("KeyId", "QuotaCode", "InstanceProfileName") if key in request]
        told += [request["InstanceMarketOptions"]["MarketType"]] if "InstanceMarketOptions" in request else []
        self.calls.append(" ".join([f"{service}.{operation}", region, *told]))
        name = f"{service}.{operation}"
        found = self.answers.get(f"{name}@{region}", self.answers[name])
        if "error" in found:
            code, message = found["error"]
            facts = {"HTTPStatusCode": found.get("status", 400), "RequestId": "req-42"}
            raw = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": facts}
            raise ClientError(cast("Any", raw), "".join(part.title() for part in operation.split("_")))
        if operation == "describe_images":
            return found
        return {key: self._kept(rows, named) if isinstance(rows, list) else rows for key, rows in found.items()}

    def _kept(self, rows: list[Any], filters: list[dict[str, Any]]) -> list[Any]:
        # An offering has no place of its own in these cases.
        wanted = [set(each["Values"]) for each in filters if each["Name"] != "location"]
        return [row for row in rows if all({str(value) for value in row.values()} & _spelt(each) for each in wanted)]


def _spelt(values: set[str]) -> set[str]:
    return values | {value.title() for value in values if value == "true"}


class _Client:
    def __init__(self, account: Account, service: str, region: str) -> None:
        self._account, self._service, self._region = account, service, region

    def __getattr__(self, operation: str) -> Any:  # noqa: ANN401 - as the SDK's own
        return functools.partial(self._ask, operation)

    def _ask(self, operation: str, **request: Any) -> Any:  # noqa: ANN401 - each operation has its own
        return self._account.answer(self._service, self._region, operation, request)


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_aws(file: Path, compare: Compare) -> None:
    case = json.loads(file.read_text())
    settings = Settings.model_validate({"region": "us-east-1", **case.get("settings", {})})
    account = Account(case.get("answers", {}))
    if case["ask"] == "quickly":
        checks = run_quick_checks(account.client, settings)
    else:
        checks = run_thorough_checks(account.client, settings, REQUEST)
    compare(file, checks, account.calls)
