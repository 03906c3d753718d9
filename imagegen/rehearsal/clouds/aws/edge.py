"""Plays *.amazonaws.com: moto answers, and here is what it lacks or does wrongly for a Windows build and a publish."""

from __future__ import annotations

import dataclasses
import re
import threading
import urllib.parse
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from imagegen.rehearsal.clouds.aws import moto_call, spot
from imagegen.rehearsal.clouds.aws.account import Account, Limits
from imagegen.rehearsal.clouds.aws.fleets import Fleets, not_started, started
from imagegen.rehearsal.clouds.aws.images import Images
from imagegen.rehearsal.clouds.aws.instances import Instances, Refused
from imagegen.rehearsal.clouds.aws.standing import Standing, furnish, renamed
from imagegen.rehearsal.clouds.aws.stock_images import DEFAULT_IMAGES, StockImage, stock
from imagegen.rehearsal.clouds.aws.tagging import without_tag_specifications
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
# What EC2 answers with another status than 400.
_STATUSES = {"AuthFailure": 401, "DryRunOperation": 412, "UnauthorizedOperation": 403}
_FORM = (("Content-Type", "text/xml;charset=UTF-8"),)
_EC2_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


@dataclasses.dataclass(frozen=True)
class AwsOptions:
    """What is there from the start; `standing` in the first region. `copy_polls`: how many looks see a copy pending;
    `create_polls` the same for a new image, which Packer looks at every five seconds.

    `profile` is one that a config names, and the file to write it to: clients read profiles from files only.
    """

    regions: tuple[str, ...] = ("us-east-1",)
    images: tuple[StockImage, ...] = DEFAULT_IMAGES
    standing: Standing = dataclasses.field(default_factory=Standing)
    copy_polls: int = 1
    create_polls: int = 0
    operator: str = OPERATOR_ADDRESS
    profile: tuple[str, Path] | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)

    def make_cloud(self, on_machine: Callable[[MachineIdentity], None]) -> Aws:
        """An account with all of that in it."""
        return Aws(self, on_machine)


class Aws(Cloud):
    """One account; credentials are taken as given. Open it before use: it owns moto's state in this process."""

    host_patterns = ("*.amazonaws.com",)
    authority_variables = ("AWS_CA_BUNDLE",)
    account = moto_call.ACCOUNT

    def __init__(self, options: AwsOptions, on_machine: Callable[[MachineIdentity], None]) -> None:
        self._options = options
        self._on_machine = on_machine
        # moto is not made for threads.
        self._lock = threading.RLock()
        self._stocked: set[str] = set()
        self._ids: dict[str, str] = {}
        self._instances = Instances(private=options.standing.private, operator=options.operator)
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
            self._ids = furnish(self._options.regions[0], self._options.standing, self._options.operator)
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
        """Throw-away credentials, and no asking of a metadata service that would be another machine's."""
        return {
            **_KEYS,
            "AWS_DEFAULT_REGION": self._options.regions[0],
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": str(self._options.profile[1]) if self._options.profile else "/dev/null",
        }

    def why_closed(self, address: str) -> str | None:
        """Why the WinRM port of an address is shut; "" when it is open, None when no instance has the address."""
        with self._lock:
            return self._instances.why_closed(address)

    def __call__(self, request: Request) -> Response:
        if request.host == "checkip.amazonaws.com":
            return Response.of_text(200, f"{self._options.operator}\n")
        match = _HOST.match(request.host)
        with self._lock:
            if match is not None and match["service"] in _SERVICES:
                action = _action(request)
                answer = self._service(match["service"], match["region"] or "us-east-1", request, action)
                return dataclasses.replace(answer, note=f"{match['service']}:{action}")
            if match is not None and match["service"] in _JSON_SERVICES:
                service, action = match["service"], _action(request)
                answer = self._account.json_answer(service, match["region"], action, request.json())
                return dataclasses.replace(answer, note=f"{service}:{action}")
            if _S3_HOST.match(request.host):
                return dataclasses.replace(moto_call.ask(request, request.body), note=f"s3:{request.method}")
        return Response(501, fault=f"unexpected AWS service {request.host}")

    def _service(self, service: str, region: str, request: Request, action: str) -> Response:
        asked = _of_the_one_account(request)
        try:
            self._account.check(service, region, action, {} if service == "ssm" else request.form())
        except Refused as refused:
            return _error(refused) if service == "ec2" else _query_error(refused)
        if service == "ec2":
            return self._ec2_by_other_ids(asked, region, action)
        return _ask(asked, request.body, action)

    def _ec2_by_other_ids(self, request: Request, region: str, action: str) -> Response:
        asked = dataclasses.replace(request, body=renamed(request.body, self._ids))
        answer = self._ec2(asked, region, action)
        return dataclasses.replace(answer, body=renamed(answer.body, {other: one for one, other in self._ids.items()}))

    def _ec2(self, request: Request, region: str, action: str) -> Response:
        if region not in self._stocked:
            self._stocked.add(region)
            stock(moto_call.ec2(region), self._options.images if region in self._options.regions else ())
        form = request.form()
        if action == "DescribeRegions":
            return self._account.describe_regions(region, form)
        try:
            if action == "CopyImage" and (known := self._images.answered(region, form)):
                return Response(200, known, _FORM)
            self._check(region, action, form)
            if action == "GetPasswordData":
                return _password_answer(form, self._instances.password_data(region, form.get("InstanceId", "")))
            if action == "CreateFleet":
                return self._fleet(request, region, self._fleets.launch_of(region, form))
        except Refused as refused:
            return _error(refused)
        body = request.body
        if action in ("CreateImage", "CopyImage"):
            body = urllib.parse.urlencode(without_tag_specifications(form, "snapshot")).encode()
        elif action == "DeleteKeyPair":
            body = urllib.parse.urlencode(_key_pair_by_name(region, form)).encode()
        answer = _ask(request, body, action)
        if answer.status == 200:
            self._follow(region, action, form, answer.body)
        return self._account.without_offers(answer) if action == "DescribeInstanceTypeOfferings" else answer

    def _fleet(self, request: Request, region: str, launch: Mapping[str, str]) -> Response:
        try:
            self._instances.check_launch(region, launch)
        except Refused as refused:
            return Response(200, not_started(refused), _FORM)
        answer = _ask(request, urllib.parse.urlencode(launch).encode(), "RunInstances")
        if answer.status != 200:
            return answer
        [machine] = self._instances.launched(region, launch, answer.body)
        spot.requested(region, machine.name, launch)
        self._on_machine(machine)
        return Response(200, started(machine.name, launch["InstanceType"]), _FORM)

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

    def _follow(self, region: str, action: str, form: Mapping[str, str], answer: bytes) -> None:
        if action == "RunInstances":
            for machine in self._instances.launched(region, form, answer):
                self._on_machine(machine)
        elif action == "CreateImage":
            self._images.created(region, form, answer)
        elif action == "CopyImage":
            self._images.copied(region, form, answer)
        elif action == "DescribeImages":
            self._images.described(region, answer)
        elif action == "ModifyImageAttribute":
            self._images.attribute_set(region, form)
        elif action == "CreateLaunchTemplate":
            self._fleets.template_made(region, form)


def _action(request: Request) -> str:
    target = request.headers.get("x-amz-target", "")
    return target.rpartition(".")[2] if target else request.form().get("Action", "")


def _of_the_one_account(request: Request) -> Request:
    """moto tells accounts apart by their keys, and a role's are another's: there is one account here."""
    signed = _KEY.sub(f"Credential={_KEYS['AWS_ACCESS_KEY_ID']}/", request.headers.get("authorization", ""))
    return dataclasses.replace(request, headers={**request.headers, "authorization": signed})


def _key_pair_by_name(region: str, form: Mapping[str, str]) -> dict[str, str]:
    """EC2 takes a key pair's id too, and moto its name only; both say nothing of one that is not there."""
    names = {pair.id: name for name, pair in moto_call.ec2(region).key_pairs.items()}
    named = {"KeyName": names.get(form.get("KeyPairId", ""), form.get("KeyName", ""))}
    return {name: value for name, value in form.items() if name != "KeyPairId"} | named


def _ask(request: Request, body: bytes, action: str) -> Response:
    answer = moto_call.ask(request, body)
    return dataclasses.replace(answer, fault=f"{answer.fault} {action}") if answer.fault else answer


def _error(refused: Refused) -> Response:
    text = (
        f"<Response><Errors><Error><Code>{refused.code}</Code><Message>{escape(refused.message)}</Message></Error>"
        "</Errors><RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
    )
    return Response(_STATUSES.get(refused.code, 400), text.encode(), _FORM)


def _query_error(refused: Refused) -> Response:
    text = (
        f"<ErrorResponse><Error><Type>Sender</Type><Code>{refused.code}</Code><Message>{escape(refused.message)}"
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
