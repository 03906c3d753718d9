"""The account: enabled regions, permissions, dry runs, instance types, quotas and keys.

The answers have the form of AWS' API references. moto's answers about regions and quotas differ from AWS.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.instances import AwsError
from imagegen.rehearsal.network.messages import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

# https://docs.aws.amazon.com/global-infrastructure/latest/regions/aws-regions.html: all others need an opt-in.
_ALWAYS_ENABLED = frozenset(
    {
        *("ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-southeast-1", "ap-southeast-2"),
        *("ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1"),
        *("us-east-1", "us-east-2", "us-west-1", "us-west-2", "us-gov-east-1", "us-gov-west-1"),
        *("cn-north-1", "cn-northwest-1"),
    }
)
QUOTA_NAMES = {
    "L-1216C47A": "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
    "L-34B43A08": "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
    "L-DB2E81BA": "Running On-Demand G and VT instances",
    "L-3819A6DF": "All G and VT Spot Instance Requests",
}
_DEFAULT_QUOTA = 64
# The dry runs that imagegen makes; Packer makes none.
_DRY_RUNS = frozenset({"CopyImage", "CreateKeyPair", "CreateLaunchTemplate", "CreateSecurityGroup", "RunInstances"})
_OFFER = r"<item>(?:(?!</item>).)*<instanceType>{size}</instanceType>.*?</item>"
_JSON = (("Content-Type", "application/x-amz-json-1.1"),)
_XML = (("Content-Type", "text/xml;charset=UTF-8"),)
_USER = f"arn:aws:iam::{moto_call.ACCOUNT}:user/rehearsal"


@dataclasses.dataclass(frozen=True)
class AccountLimits:
    """The limits of the account.

    `denied_actions` are written as in policies (`ec2:CopyImage`), `not_offered` are instance types that no zone has,
    `quotas` are vCPUs by code if they are not the default, and `keys` has the states of keys by region and name.
    """

    disabled_regions: frozenset[str] = frozenset()
    denied_actions: frozenset[str] = frozenset()
    not_offered: frozenset[str] = frozenset()
    quotas: Mapping[str, int] = dataclasses.field(default_factory=dict)
    keys: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)


class Account:
    """Checks each request before moto answers it, and answers those that moto does not support."""

    def __init__(self, limits: AccountLimits) -> None:
        self._limits = limits

    def check(self, service: str, region: str, action: str, form: Mapping[str, str]) -> None:
        """Reject a request if its region is disabled or a permission is missing. A dry run ends here."""
        if region in self._limits.disabled_regions:
            # The answers of EC2 and STS in a region that the account has not enabled.
            code = "InvalidClientTokenId" if service == "sts" else "AuthFailure"
            raise AwsError(code, "AWS was not able to validate the provided access credentials")
        needed = [action]
        if service == "ec2" and any(name.startswith("TagSpecification.") for name in form):
            needed.append("CreateTags")
        for name in needed:
            if f"{service}:{name}" in self._limits.denied_actions:
                code = "UnauthorizedOperation" if service == "ec2" else "AccessDenied"
                raise AwsError(code, _denial(f"{service}:{name}"))
        if service == "ec2" and form.get("DryRun") == "true" and action in _DRY_RUNS:
            raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")

    def describe_regions(self, region: str, form: Mapping[str, str]) -> Response:
        """Answer DescribeRegions: the regions of the partition, with AllRegions also those that are not enabled."""
        items = []
        for known in RegionsAndZonesBackend.regions:
            status = self._opt_in_status(known.name)
            is_listed = form.get("AllRegions") == "true" or status != "not-opted-in"
            if is_listed and _partition(known.name) == _partition(region):
                items.append(
                    f"<item><regionName>{known.name}</regionName><regionEndpoint>{known.endpoint}</regionEndpoint>"
                    f"<optInStatus>{status}</optInStatus></item>"
                )
        text = (
            '<DescribeRegionsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            "<requestId>00000000-0000-0000-0000-000000000000</requestId>"
            f"<regionInfo>{''.join(items)}</regionInfo></DescribeRegionsResponse>"
        )
        return Response(200, text.encode(), _XML)

    def _opt_in_status(self, region: str) -> str:
        if region in self._limits.disabled_regions:
            return "not-opted-in"
        return "opt-in-not-required" if region in _ALWAYS_ENABLED else "opted-in"

    def remove_offerings(self, answer: Response) -> Response:
        """Remove the instance types that are not offered from the answer to DescribeInstanceTypeOfferings."""
        body = answer.body.decode()
        for size in self._limits.not_offered:
            body = re.sub(_OFFER.format(size=re.escape(size)), "", body, flags=re.DOTALL)
        return dataclasses.replace(answer, body=body.encode())

    def answer_json(self, service: str, region: str, action: str, body: Mapping[str, str]) -> Response:
        """Answer a request to Service Quotas or KMS, whose protocol is JSON."""
        if f"{service}:{action}" in self._limits.denied_actions:
            return _json_error("AccessDeniedException", _denial(f"{service}:{action}"))
        if (service, action) == ("servicequotas", "GetServiceQuota"):
            return self._get_quota(region, body)
        if (service, action) == ("kms", "DescribeKey"):
            return self._describe_key(region, body["KeyId"])
        fault = f"unexpected AWS request {service}:{action}"
        return dataclasses.replace(_json_error("UnknownOperationException", fault), fault=fault)

    def _get_quota(self, region: str, body: Mapping[str, str]) -> Response:
        code = body["QuotaCode"]
        if body["ServiceCode"] != "ec2" or code not in QUOTA_NAMES:
            return _json_error("NoSuchResourceException", f"The request failed because the quota {code} does not exist")
        quota = {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": f"arn:aws:servicequotas:{region}:{moto_call.ACCOUNT}:ec2/{code}",
            "QuotaCode": code,
            "QuotaName": QUOTA_NAMES[code],
            "Value": float(self._limits.quotas.get(code, _DEFAULT_QUOTA)),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }
        return Response(200, json.dumps({"Quota": quota}).encode(), _JSON)

    def _describe_key(self, region: str, key: str) -> Response:
        state = self._limits.keys.get((region, key))
        if state is None:
            return _json_error("NotFoundException", f"Key '{key}' does not exist")
        metadata = {
            "AWSAccountId": moto_call.ACCOUNT,
            "KeyId": "00000000-0000-4000-8000-000000000000",
            "Enabled": state == "Enabled",
            "KeyState": state,
            "KeySpec": "SYMMETRIC_DEFAULT",
            "KeyUsage": "ENCRYPT_DECRYPT",
        }
        return Response(200, json.dumps({"KeyMetadata": metadata}).encode(), _JSON)


def _denial(action: str) -> str:
    return (
        f"You are not authorized to perform this operation. User: {_USER} is not authorized to perform: {action} "
        f"because no identity-based policy allows the {action} action. Encoded authorization failure message: AAAA"
    )


def _partition(region: str) -> str:
    return next((prefix for prefix in ("us-gov-", "cn-") if region.startswith(prefix)), "")


def _json_error(code: str, message: str) -> Response:
    return Response(400, json.dumps({"__type": code, "Message": message}).encode(), _JSON)
