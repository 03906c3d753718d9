"""Answers for *.amazonaws.com with moto, and corrects what moto lacks or does wrongly for building and publishing."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import re
import threading
import urllib.parse
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from imagegen.rehearsal.clouds.aws import moto_call, spot
from imagegen.rehearsal.clouds.aws.account import Account, AccountLimits
from imagegen.rehearsal.clouds.aws.base_images import DEFAULT_IMAGES, WindowsImage, add_base_images
from imagegen.rehearsal.clouds.aws.existing_resources import ExistingResources, create_resources, replace_ids
from imagegen.rehearsal.clouds.aws.fleets import Fleets, failed_answer, started_answer
from imagegen.rehearsal.clouds.aws.images import Images, without_disabled
from imagegen.rehearsal.clouds.aws.instances import AwsError, Instances
from imagegen.rehearsal.clouds.aws.presigned import find_fault
from imagegen.rehearsal.clouds.aws.tagging import drop_tag_specifications
from imagegen.rehearsal.network.cloud import Cloud
from imagegen.rehearsal.network.machine import OPERATOR_ADDRESS, MachineIdentity
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Mapping
    from pathlib import Path

_HOST = re.compile(r"(?P<service>[a-z0-9-]+)(?:\.(?P<region>[a-z]{2}(?:-[a-z]+)+-\d))?\.amazonaws\.com\Z")
_KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAREHEARSAL0000000",
    "AWS_SECRET_ACCESS_KEY": "thr0w-away-0000000000000000000000000000000",
}
_KEY = re.compile(r"Credential=[^/]+/")
_S3_HOST = re.compile(r"(?:[a-z0-9.-]+\.)?s3(?:[.-][a-z0-9-]+)?\.amazonaws\.com\Z")
_SERVICES = frozenset({"ec2", "iam", "ssm", "sts"})
_JSON_SERVICES = frozenset({"kms", "servicequotas"})
# The errors of EC2 whose status is not 400.
_STATUSES = {"AuthFailure": 401, "DryRunOperation": 412, "UnauthorizedOperation": 403}
_FORM = (("Content-Type", "text/xml;charset=UTF-8"),)
_EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclasses.dataclass(frozen=True)
class AwsOptions:
    """The initial state of the account. The existing resources are in the first region.

    A copy is pending for `copy_polls` requests, and a new image for `create_polls`; Packer polls every five seconds.
    `profile` is the name of a profile in the config, and the file for it: clients read profiles only from files.
    """

    regions: tuple[str, ...] = ("us-east-1",)
    images: tuple[WindowsImage, ...] = DEFAULT_IMAGES
    existing: ExistingResources = dataclasses.field(default_factory=ExistingResources)
    copy_polls: int = 1
    create_polls: int = 0
    operator: str = OPERATOR_ADDRESS
    profile: tuple[str, Path] | None = None
    limits: AccountLimits = dataclasses.field(default_factory=AccountLimits)

    def make_cloud(self, on_machine: Callable[[MachineIdentity], None]) -> Aws:
        """Make an account with this state."""
        return Aws(self, on_machine)


class Aws(Cloud):
    """One AWS account, which accepts any credentials. A context manager that owns moto's state in this process."""

    host_patterns = ("*.amazonaws.com",)
    authority_variables = ("AWS_CA_BUNDLE",)
    account = moto_call.ACCOUNT

    def __init__(self, options: AwsOptions, on_machine: Callable[[MachineIdentity], None]) -> None:
        self._options = options
        self._on_machine = on_machine
        # moto is not thread-safe.
        self._lock = threading.RLock()
        self._regions_with_images: set[str] = set()
        self._ids: dict[str, str] = {}
        self._instances = Instances(private=options.existing.private, operator=options.operator)
        self._images = Images(options.copy_polls, options.create_polls)
        self._fleets = Fleets()
        self._account = Account(options.limits)

    def __enter__(self) -> Aws:
        moto_call.acquire()
        try:
            if self._options.profile:
                name, file = self._options.profile
                lines = [f"[{name}]", *(f"{key.lower()} = {value}" for key, value in _KEYS.items())]
                file.write_text("\n".join(lines) + "\n")
            self._ids = create_resources(self._options.regions[0], self._options.existing, self._options.operator)
        except BaseException:
            moto_call.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        with self._lock:
            moto_call.release()

    @property
    def credentials(self) -> dict[str, str]:
        """Temporary credentials. The metadata service is disabled: it would be that of the machine itself."""
        return {
            **_KEYS,
            "AWS_DEFAULT_REGION": self._options.regions[0],
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": str(self._options.profile[1]) if self._options.profile else "/dev/null",
        }

    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of this address is closed: "" if it is open, None if no instance has the address."""
        with self._lock:
            return self._instances.why_closed(address)

    def admit(self, request: Request) -> Response | None:
        """Refuse a request for an object that is not presigned with the key of this account."""
        keys = {_KEYS["AWS_ACCESS_KEY_ID"]: _KEYS["AWS_SECRET_ACCESS_KEY"]}
        fault = find_fault(request, keys, datetime.datetime.now(datetime.UTC))
        return Response.of_text(403, f"<Error><Message>{escape(fault)}</Message></Error>") if fault else None

    def __call__(self, request: Request) -> Response:
        if request.host == "checkip.amazonaws.com":
            return Response.of_text(200, f"{self._options.operator}\n")
        match = _HOST.match(request.host)
        with self._lock:
            if match is not None and match["service"] in _SERVICES:
                action = _action(request)
                answer = self._answer_service(match["service"], match["region"] or "us-east-1", request, action)
                return dataclasses.replace(answer, note=f"{match['service']}:{action}")
            if match is not None and match["service"] in _JSON_SERVICES:
                service, action = match["service"], _action(request)
                answer = self._account.answer_json(service, match["region"], action, request.json())
                return dataclasses.replace(answer, note=f"{service}:{action}")
            if _S3_HOST.match(request.host):
                answer = _wrong_digest(request) or moto_call.send(request, request.body)
                return dataclasses.replace(answer, note=f"s3:{request.method}")
        return Response(501, fault=f"unexpected AWS service {request.host}")

    def _answer_service(self, service: str, region: str, request: Request, action: str) -> Response:
        signed = _with_own_account(request)
        try:
            self._account.check(service, region, action, {} if service == "ssm" else request.form())
        except AwsError as error:
            return _error(error) if service == "ec2" else _query_error(error)
        if service == "ec2":
            return self._ec2_with_replaced_ids(signed, region, action)
        return _call_moto(signed, request.body, action)

    def _ec2_with_replaced_ids(self, request: Request, region: str, action: str) -> Response:
        replaced = dataclasses.replace(request, body=replace_ids(request.body, self._ids))
        answer = self._ec2(replaced, region, action)
        return dataclasses.replace(answer, body=replace_ids(answer.body, {new: old for old, new in self._ids.items()}))

    def _ec2(self, request: Request, region: str, action: str) -> Response:
        if region not in self._regions_with_images:
            self._regions_with_images.add(region)
            add_base_images(moto_call.ec2(region), self._options.images if region in self._options.regions else ())
        form = request.form()
        if action == "DescribeRegions":
            return self._account.describe_regions(region, form)
        try:
            if action == "CopyImage" and (recorded := self._images.find_answer(region, form)):
                return Response(200, recorded, _FORM)
            self._check(region, action, form)
            if action == "GetPasswordData":
                return _password_answer(form, self._instances.encrypt_password(region, form.get("InstanceId", "")))
            if action == "CreateFleet":
                return self._create_fleet(request, region, self._fleets.make_launch(region, form))
        except AwsError as error:
            return _error(error)
        body = request.body
        if action in ("CreateImage", "CopyImage"):
            body = urllib.parse.urlencode(drop_tag_specifications(form, "snapshot")).encode()
        elif action == "DescribeImages":
            body = urllib.parse.urlencode(without_disabled(form)).encode()
        elif action == "DeleteKeyPair":
            body = urllib.parse.urlencode(_key_pair_by_name(region, form)).encode()
        answer = _call_moto(request, body, action)
        if answer.status == 200:
            self._update_state(region, action, form, answer.body)
        return self._account.remove_offerings(answer) if action == "DescribeInstanceTypeOfferings" else answer

    def _create_fleet(self, request: Request, region: str, launch: Mapping[str, str]) -> Response:
        try:
            self._instances.check_launch(region, launch)
        except AwsError as error:
            return Response(200, failed_answer(error), _FORM)
        answer = _call_moto(request, urllib.parse.urlencode(launch).encode(), "RunInstances")
        if answer.status != 200:
            return answer
        [machine] = self._instances.register_launch(region, launch, answer.body)
        spot.add_request(region, machine.name, launch)
        self._on_machine(machine)
        return Response(200, started_answer(machine.name, launch["InstanceType"]), _FORM)

    def _check(self, region: str, action: str, form: Mapping[str, str]) -> None:
        if action == "RunInstances":
            self._instances.check_launch(region, form)
        elif action == "DeleteSecurityGroup":
            self._instances.check_group_unused(region, form)
        elif action in ("CreateImage", "CopyImage"):
            self._images.check_name(region, form.get("Name", ""))
            self._images.check_copy(form)
        elif action == "ModifyImageAttribute":
            self._images.check_attribute(form)

    def _update_state(self, region: str, action: str, form: Mapping[str, str], answer: bytes) -> None:
        if action == "RunInstances":
            for machine in self._instances.register_launch(region, form, answer):
                self._on_machine(machine)
        elif action == "CreateImage":
            self._images.after_create(region, form, answer)
        elif action == "CopyImage":
            self._images.after_copy(region, form, answer)
        elif action == "DescribeImages":
            self._images.after_describe(region, answer)
        elif action == "ModifyImageAttribute":
            self._images.after_modify(region, form)
        elif action == "CreateLaunchTemplate":
            self._fleets.add_template(region, form)


def _wrong_digest(request: Request) -> Response | None:
    """S3's answer to an object with another digest than its request says. moto compares no digest."""
    claimed = request.headers.get("x-amz-checksum-sha256", "")
    if claimed and claimed != base64.b64encode(hashlib.sha256(request.body).digest()).decode():
        return Response(400, b"<Error><Code>BadDigest</Code><Message>The SHA256 did not match.</Message></Error>")
    return None


def _action(request: Request) -> str:
    target = request.headers.get("x-amz-target", "")
    return target.rpartition(".")[2] if target else request.form().get("Action", "")


def _with_own_account(request: Request) -> Request:
    """Replace the access key in the signature. moto derives the account from the key, and a role has another key."""
    signed = _KEY.sub(f"Credential={_KEYS['AWS_ACCESS_KEY_ID']}/", request.headers.get("authorization", ""))
    return dataclasses.replace(request, headers={**request.headers, "authorization": signed})


def _key_pair_by_name(region: str, form: Mapping[str, str]) -> dict[str, str]:
    """Replace the id of a key pair with its name, because moto supports only names. Unknown ids are ignored."""
    names = {pair.id: name for name, pair in moto_call.ec2(region).key_pairs.items()}
    named = {"KeyName": names.get(form.get("KeyPairId", ""), form.get("KeyName", ""))}
    return {name: value for name, value in form.items() if name != "KeyPairId"} | named


def _call_moto(request: Request, body: bytes, action: str) -> Response:
    answer = moto_call.send(request, body)
    return dataclasses.replace(answer, fault=f"{answer.fault} {action}") if answer.fault else answer


def _error(error: AwsError) -> Response:
    text = (
        f"<Response><Errors><Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message></Error>"
        "</Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
    )
    return Response(_STATUSES.get(error.code, 400), text.encode(), _FORM)


def _query_error(error: AwsError) -> Response:
    text = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{error.code}</Code><Message>{escape(error.message)}"
        "</Message></Error><RequestId>00000000-0000-0000-0000-000000000000</RequestId></ErrorResponse>"
    )
    return Response(403, text.encode(), _FORM)


def _password_answer(form: Mapping[str, str], password_data: str) -> Response:
    text = (
        f'<GetPasswordDataResponse xmlns="{_EC2_NAMESPACE}"><requestId>00000000-0000-0000-0000-000000000000</requestId>'
        f"<instanceId>{escape(form['InstanceId'])}</instanceId><timestamp>2026-01-01T00:00:00.000Z</timestamp>"
        f"<passwordData>{password_data}</passwordData></GetPasswordDataResponse>"
    )
    return Response(200, text.encode(), _FORM)
