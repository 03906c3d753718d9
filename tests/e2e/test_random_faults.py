"""Random faults of both clouds on everything that imagegen asks of them itself.

Whatever goes wrong and when: imagegen ends with a documented code and an error to read, and the same command, run
again when nothing is wrong any more, ends well, with nothing in the cloud twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import itertools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import requests
from botocore.httpsession import URLLib3Session
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from imagegen.base.errors import ExitCode, ImagegenError
from imagegen.fetch.lock import lock_bytes
from imagegen.providers.tags import ACCEPTED, REPORT
from imagegen.rehearsal.clouds.aws import faults as aws
from imagegen.rehearsal.clouds.aws import moto_call
from imagegen.rehearsal.clouds.aws.images import BuiltAmi
from imagegen.rehearsal.clouds.azure import faults as azure
from imagegen.rehearsal.faults.web_filter import BLOCKED_PAGE
from imagegen.rehearsal.network.journal import Injection, Injections
from imagegen.rehearsal.network.messages import HANG_UP, Request, Response
from tests.e2e.random_faults_support import KILLED, InProcessAzure, Product, sent_by_botocore, sent_by_requests
from tests.e2e.rehearsal_support import CONFIG, TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from botocore.awsrequest import AWSResponse

    from imagegen.plan.model import BuildPlan
    from tests.e2e.random_faults_support import Cloud

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("cloud_descriptions")]

# Beside the hundred for each cloud in which a fault comes alone. AWS takes longer: each client of boto3 costs.
_NIGHTLY = bool(os.environ.get("IMAGEGEN_NIGHTLY"))
_EXAMPLES = {"aws": 600, "azure": 1400} if _NIGHTLY else {"aws": 150, "azure": 350}
_LEAST = {"aws": 650, "azure": 1350} if _NIGHTLY else {"aws": 200, "azure": 400}
_LONG = 10_000
# A cloud's fault ends a build before anything was made (as refused, or as what may be tried again) or in publishing. It
# is none of a tool, of bytes, of a record. Code 2 says that the command or the credentials must be changed: only an
# answer that rejects the credentials may say so.
_ERRORS = frozenset({ExitCode.REFUSED, ExitCode.BUILD, ExitCode.PUBLISH})
_REJECTED = frozenset({"expired", "not signed in"})
_HOME, _AWAY = "ec2.us-east-1.amazonaws.com", "ec2.us-west-2.amazonaws.com"
_XHTML = Response(
    200,
    b'<?xml version="1.0"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><body>Sign in</body></html>',
    (("Content-Type", "application/xhtml+xml"),),
)
_GATEWAY = Response(502, b"<html><body>Bad Gateway</body></html>", (("Content-Type", "text/html"),))
_EMPTY = Response(200, b"", (("Content-Type", "text/plain"), ("Content-Length", "0")))


@dataclasses.dataclass(frozen=True)
class Trouble:
    """One fault: at which requests, after how many of them, and how often."""

    where: str
    what: str
    skip: int
    times: int

    def injection(self, cloud: Cloud) -> Injection:
        place = PLACES[self.where]
        seen = itertools.count()

        def is_due(request: Request) -> bool:
            return place.asks(request) and next(seen) >= self.skip

        made = FAULTS[self.what]
        if isinstance(made, Response):
            return Injection(place.host, place.path, made, None, is_due, self.times)
        change = made

        def mutate(request: Request, own: Response) -> Response | None:
            return change(cloud, request, own)

        return Injection(place.host, place.path, None, mutate, is_due, self.times)


Change = Callable[["Cloud", Request, Response], Response | None]


def _lost(_cloud: Cloud, _request: Request, own: Response) -> Response:
    return dataclasses.replace(own, status=HANG_UP.status)


def _cut_off(_cloud: Cloud, _request: Request, own: Response) -> Response:
    return dataclasses.replace(own, body=own.body[: len(own.body) // 2])


def _unseen(_cloud: Cloud, _request: Request, own: Response) -> Response:
    """EC2 shows an image late, and forgets one for a moment."""
    body = re.sub(rb"<imagesSet>.*</imagesSet>", b"<imagesSet/>", own.body, flags=re.DOTALL)
    return dataclasses.replace(own, body=body)


class _FailedAmi(BuiltAmi):
    """It stays so, whoever sets another state."""

    @property
    def state(self) -> str:
        return "failed"

    @state.setter
    def state(self, _state: str) -> None:
        pass


def _copy_fails(cloud: Cloud, _request: Request, own: Response) -> Response:
    for found in re.findall(rb"<imageId>(ami-[0-9a-f]+)</imageId>", own.body):
        moto_call.ec2(cloud.away).amis[found.decode()].__class__ = _FailedAmi
    return own


def _replication_fails(cloud: Cloud, _request: Request, own: Response) -> Response:
    assert isinstance(cloud, InProcessAzure)
    cloud.failing[cloud.away] = "the replication was cut off"
    return own


def _asks_for(action: str) -> Callable[[Request], bool]:
    return lambda request: request.form().get("Action") == action


def _uses(*methods: str) -> Callable[[Request], bool]:
    return lambda request: request.method in methods


def _anything(_request: Request) -> bool:
    return True


_ARM, _LOGIN = "management.azure.com", "login.microsoftonline.com"
_ANY_VERSION = "*/galleries/*/images/*/versions/*"


@dataclasses.dataclass(frozen=True)
class Place:
    """Some of a cloud's requests. `most`: how many of them a fault may let pass before it happens."""

    host: str = "*"
    path: str = "*"
    asks: Callable[[Request], bool] = _anything
    most: int = 6


PLACES = {
    "AWS": Place(most=12),
    "looks at home": Place(_HOME, asks=_asks_for("DescribeImages")),
    "the other region": Place(_AWAY),
    "looks away": Place(_AWAY, asks=_asks_for("DescribeImages")),
    "the copy": Place(_AWAY, asks=_asks_for("CopyImage"), most=0),
    "Azure": Place(most=12),
    "the login": Place(_LOGIN),
    "ARM": Place(_ARM, most=12),
    "the base image": Place(_ARM, "*/skus/*", most=0),
    "the definition": Place(_ARM, "*/images/capi-*", _uses("GET")),
    "the list of versions": Place(_ARM, "*/galleries/*/images/*/versions", _uses("GET"), most=2),
    "looks at the version": Place(_ARM, _ANY_VERSION, _uses("GET")),
    "the update": Place(_ARM, _ANY_VERSION, _uses("PUT"), most=1),
}
FAULTS: dict[str, Response | Change] = {
    "reset": HANG_UP,
    "lost answer": _lost,
    "cut off": _cut_off,
    "web filter": BLOCKED_PAGE,
    "portal": _XHTML,
    "gateway": _GATEWAY,
    "empty": _EMPTY,
    "EC2 throttles": aws.THROTTLED,
    "EC2's error": aws.INTERNAL_ERROR,
    "EC2 is away": aws.ec2_error(503, "Unavailable", "The service is unavailable. Please try again shortly."),
    "not enabled": aws.NOT_ENABLED,
    "not subscribed": aws.ec2_error(403, "OptInRequired", "You are not subscribed to this service."),
    "not allowed by AWS": aws.ec2_error(403, "UnauthorizedOperation", "You are not authorized to do this."),
    "expired": aws.ec2_error(400, "RequestExpired", "Request has expired."),
    "too many copies": aws.ec2_error(400, "ResourceLimitExceeded", "Too many snapshot copies in progress."),
    "unseen": _unseen,
    "the copy fails": _copy_fails,
    "same token": aws.KEPT_COPY,
    "ARM throttles": azure.THROTTLED,
    "ARM throttles longer": dataclasses.replace(
        azure.THROTTLED, headers=(*azure.THROTTLED.headers[:1], ("Retry-After", "300"))
    ),
    "ARM's error": azure.INTERNAL_ERROR,
    "ARM is away": azure.arm_error(503, "ServiceUnavailable", "The service is unavailable."),
    "not allowed by Azure": azure.arm_error(403, "AuthorizationFailed", "The client does not have authorization."),
    "conflict": azure.arm_error(409, "Conflict", "Another operation is in progress."),
    "no quota": azure.arm_error(409, "OperationNotAllowed", "The operation exceeds the quota."),
    "not signed in": Response.of_json(
        400, {"error": "invalid_client", "error_description": "AADSTS7000222: The provided client secret has expired."}
    ),
    "login is away": Response.of_json(503, {"error": "temporarily_unavailable"}),
    "the replication fails": _replication_fails,
}
_TRANSPORT = ["reset", "lost answer", "cut off", "web filter", "portal", "gateway", "empty"]
_ANYWHERE_IN_EC2 = ["EC2 throttles", "EC2's error", "EC2 is away", "not allowed by AWS", "expired"]
_OF_EC2 = [*_ANYWHERE_IN_EC2, "not enabled", "not subscribed", "too many copies"]
_ANYWHERE_IN_ARM = ["ARM throttles", "ARM throttles longer", "ARM's error", "ARM is away", "not allowed by Azure"]
_OF_ARM = [*_ANYWHERE_IN_ARM, "conflict", "no quota"]
# Which faults there are at which place.
POSSIBLE = {
    "aws": {
        "AWS": [*_TRANSPORT, *_ANYWHERE_IN_EC2],
        "looks at home": [*_TRANSPORT, *_ANYWHERE_IN_EC2],
        "the other region": [*_TRANSPORT, *_OF_EC2],
        "looks away": [*_TRANSPORT, *_OF_EC2, "unseen"],
        "the copy": [*_TRANSPORT, *_OF_EC2, "the copy fails", "same token"],
    },
    "azure": {
        "Azure": _TRANSPORT,
        "the login": [*_TRANSPORT, "not signed in", "login is away"],
        "ARM": [*_TRANSPORT, *_ANYWHERE_IN_ARM],
        "the base image": [*_TRANSPORT, *_ANYWHERE_IN_ARM],
        "the definition": [*_TRANSPORT, *_ANYWHERE_IN_ARM],
        "the list of versions": [*_TRANSPORT, *_ANYWHERE_IN_ARM],
        "looks at the version": [*_TRANSPORT, *_ANYWHERE_IN_ARM],
        "the update": [*_TRANSPORT, *_OF_ARM, "the replication fails"],
    },
}


def _pairs(target: str) -> list[tuple[str, str]]:
    return [(where, what) for where, whats in POSSIBLE[target].items() for what in whats]


def _troubles(target: str) -> st.SearchStrategy[Trouble]:
    def made(pair: tuple[str, str], skip: int, times: int) -> Trouble:
        # EC2 forgets an image for a moment, and not for minutes.
        where, what = pair
        return Trouble(where, what, min(skip, PLACES[where].most), min(times, 3) if what == "unseen" else times)

    times = st.sampled_from([1, 2, 3, 6, 7, 13, _LONG])
    return st.builds(made, st.sampled_from(_pairs(target)), st.integers(0, 12), times)


def _scripts(target: str) -> st.SearchStrategy[list[list[Trouble]]]:
    """The faults of one run, or of two."""
    return st.lists(st.lists(_troubles(target), min_size=1, max_size=4), min_size=1, max_size=2)


@pytest.fixture
def product(
    request: pytest.FixtureRequest, aws_answer: Callable[[int, bytes], AWSResponse], monkeypatch: pytest.MonkeyPatch
) -> Product:
    made = Product(request.param, CONFIG, monkeypatch)
    monkeypatch.setattr(URLLib3Session, "send", sent_by_botocore(made, aws_answer))
    monkeypatch.setattr(requests.Session, "request", sent_by_requests(made))
    return made


@pytest.mark.parametrize("product", TARGETS, indirect=True)
def test_whatever_goes_wrong_a_rerun_ends_well_and_nothing_is_made_twice(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    met: set[tuple[str, str]] = set()
    tried: set[tuple[str, bool]] = set()
    deaths = 0

    @settings(
        max_examples=_EXAMPLES[product.target],
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(script=_scripts(product.target), packer_dies=st.booleans() if product.target == "aws" else st.just(False))
    def check(script: list[list[Trouble]], packer_dies: bool) -> None:
        nonlocal deaths
        tried.add((repr(script), packer_dies))
        folder = tmp_path_factory.mktemp("example")
        (folder / "lock.json").write_bytes(lock_bytes(product.lock))
        with product.open_cloud(folder) as cloud:
            for hour, troubles in enumerate(script):
                cloud.injections = Injections()
                # Only the first build: the others find what it left on its way.
                cloud.packer_dies = packer_dies and not cloud.made
                waiting = [(trouble, trouble.injection(cloud)) for trouble in troubles]
                for _, injection in waiting:
                    cloud.injections.add(injection)
                error = _run_with_faults(product, folder, hour)
                faults = {(trouble.where, trouble.what) for trouble, injection in waiting if injection.triggered}
                met.update(faults)
                if error is not None:
                    fitting = {*_ERRORS, *([ExitCode.USAGE] if _REJECTED & {what for _, what in faults} else [])}
                    assert error.exit_code in fitting, (error.message, faults)
                    deaths += error.message == KILLED
            cloud.injections = Injections()
            cloud.packer_dies = False
            cloud.follow_hints(functools.partial(product.clean_up, folder))
            said = io.StringIO()
            manifest = product.build(folder, 23, said)
            assert "could not be tagged" not in said.getvalue()
            assert manifest.published is not None
            assert {image.region for image in manifest.published.images} == {cloud.home, cloud.away}
            assert cloud.usable() == {cloud.home: 1, cloud.away: 1}
            assert cloud.made == 1
            cloud.check_end()

    # Chance leaves some out: each fault by itself, once and for good.
    for where, what in _pairs(product.target):
        for times in (1, 3 if what == "unseen" else _LONG):
            check = example(script=[[Trouble(where, what, 0, times)]], packer_dies=False)(check)
    check()
    # What is never met shows nothing; and what was tried twice counts once.
    assert met == set(_pairs(product.target))
    assert len(tried) >= _LEAST[product.target]
    assert (deaths > 0) == (product.target == "aws")


@pytest.mark.parametrize("product", TARGETS, indirect=True)
def test_each_of_two_machines_records_and_judges_its_own_image(
    product: Product, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, dict[str, str]] = {}
    (tmp_path / "lock.json").write_bytes(lock_bytes(product.lock))
    with product.open_cloud(tmp_path) as cloud:
        make_image = cloud.make_image

        def make_two(plan: BuildPlan, variables: Mapping[str, str]) -> str:
            monkeypatch.setattr(cloud, "make_image", make_image)
            ours, theirs = make_image(plan, variables), cloud.make_newer(plan, variables)
            made.update({artifact: cloud.tags(artifact) for artifact in (ours, theirs)})
            return ours

        monkeypatch.setattr(cloud, "make_image", make_two)
        manifest = product.build(tmp_path, 10, io.StringIO())
        ours, theirs = made
        assert manifest.built is not None
        assert ours.endswith(manifest.built.id)
        assert cloud.tags(ours)[REPORT] == ACCEPTED
        assert cloud.tags(theirs) == made[theirs]
        assert REPORT not in made[theirs]


def _run_with_faults(product: Product, folder: Path, hour: int) -> ImagegenError | None:
    """How it ended; whatever is said of it can be read."""
    said, raw = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(raw), contextlib.redirect_stdout(raw):
        error = _error_of(lambda: product.build(folder, hour, said))
    if error is not None:
        assert error.message.strip()
        told = [error.message, error.hint, *error.details]
        assert [text for text in told if "\n" in text or "<html" in text.lower() or "Traceback" in text] == []
    assert raw.getvalue() == ""
    assert "Traceback" not in said.getvalue()
    return error


def _error_of(build: Callable[[], object]) -> ImagegenError | None:
    try:
        build()
    except ImagegenError as error:
        return error
    return None
