"""What a build waits for before it begins is asked within seconds, whatever a cloud answers, or fails to."""

from __future__ import annotations

import dataclasses
import io
import itertools
import time
from typing import TYPE_CHECKING, Any

# Here, because its import asks `uname`, which code under test may not.
import azure.identity  # noqa: F401
import botocore.httpsession
import pytest

from imagegen.base.console import Console
from imagegen.base.errors import RefusedError
from imagegen.leftovers import sweep
from imagegen.providers import Remains, RunFacts, time_limits
from imagegen.providers.aws import checks as aws_checks
from imagegen.providers.aws import provider as aws_provider
from imagegen.providers.aws.settings import Auth, Place
from imagegen.providers.aws.settings import Settings as AwsSettings
from imagegen.providers.azure import checks, provider, source
from imagegen.providers.azure.settings import Settings
from imagegen.providers.checks import UNKNOWN
from imagegen.providers.time_limits import Deadline
from imagegen.run import Run
from tests.conftest import REPOSITORY, load_today
from tests.unit.providers.test_azure_failures import ENVIRON, TOKEN, answered_by, of_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.awsrequest import AWSResponse

THROTTLED = (429, "Too Many Requests", *of_json({"error": {"code": "TooManyRequests", "message": "wait"}}))
AWAY = (503, "Away", *of_json({"error": {"code": "ServiceUnavailable", "message": "away"}}))
CONFIG = REPOSITORY / "configs" / "windows-2022-containerd.yaml"


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The SDKs' pauses, which nobody waits for here; the deadline's clock goes on with them."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + sum(pauses))
    return pauses


def settings() -> Settings:
    found = load_today(CONFIG).specs["azure"].settings
    assert isinstance(found, Settings)
    return found


@pytest.mark.parametrize(
    ("who", "answer", "says", "most"),
    [
        ("arm", (*THROTTLED, {"Retry-After": "300"}), "Azure requests a pause of 300 seconds", 3),
        ("arm", (*AWAY, {}), "away", 6),
        ("login", (*THROTTLED, {"Retry-After": "300"}), "Azure requests a pause of 300 seconds", 4),
        ("login", (*AWAY, {}), "login.microsoftonline.com", 6),
    ],
    ids=["arm-throttles", "arm-away", "login-throttles", "login-away"],
)
def test_azure_is_asked_for_seconds_and_what_it_does_not_answer_is_unknown(
    who: str, answer: tuple[Any, ...], says: str, most: int, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {who: answer}
    asked = answered_by(monkeypatch, login=answers.get("login", TOKEN), arm=answers.get("arm", TOKEN))
    found = checks.quick_checks(settings(), RunFacts(ENVIRON, {}, ""))
    assert {check.verdict for check in found} == {UNKNOWN}
    assert len(found) == 3
    assert all(says in check.message for check in found)
    assert sum(waited) <= time_limits.QUICK_LIMIT_S
    assert len([each for each in asked if who in each]) <= most


@pytest.mark.parametrize(("ask", "each_s"), [("quick", 12.0), ("leftovers", 12.0), ("thorough", 70.0)])
def test_after_its_time_azure_is_not_asked_any_more(
    ask: str, each_s: float, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answered_by(monkeypatch, after=lambda: waited.append(each_s), arm=(*AWAY, {}))
    run = RunFacts(ENVIRON, {}, "")
    if ask == "quick":
        assert {check.verdict for check in checks.quick_checks(settings(), run)} == {UNKNOWN}
    elif ask == "thorough":
        spec: Any = load_today(CONFIG).specs["azure"]
        found = checks.thorough_checks(spec, source.base_request(spec.settings, spec.offered_image), run)
        assert {check.verdict for check in found} == {UNKNOWN}
        assert len(found) > 3
        assert all("the limit of 120 seconds has passed" in check.message for check in found)
    else:
        place = provider.place(settings(), run)
        remains = provider.leftovers(place, run, Deadline())
        assert remains.leftovers == ()
        assert remains.faults
    assert len(asked) == 2


def test_a_host_that_is_slow_is_not_waited_for_beyond_the_time(
    waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[tuple[float, float]] = []
    answered_by(monkeypatch, arm=(*AWAY, {}), after=lambda: waited.append(8.0), limits=limits)
    checks.quick_checks(settings(), RunFacts(ENVIRON, {}, ""))
    # Two requests for the sign-in took 16 seconds.
    assert limits == [(4.0, 4.0)]


@pytest.mark.parametrize(
    ("ask", "each_s", "most"), [("quick", 12.0, 2), ("quick", 0.0, 6), ("leftovers", 12.0, 2), ("thorough", 70.0, 2)]
)
def test_aws_is_asked_twice_at_most_and_not_after_its_time(
    ask: str,
    each_s: float,
    most: int,
    aws_answer: Callable[[int, bytes], AWSResponse],
    waited: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = itertools.count()

    def send(*_: object) -> AWSResponse:
        waited.append(each_s)
        next(asked)
        return aws_answer(503, b"")

    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", send)
    run = RunFacts({"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}, {}, "")
    if ask == "quick":
        aws = load_today(CONFIG).specs["aws"].settings
        assert isinstance(aws, AwsSettings)
        assert {check.verdict for check in aws_checks.quick_checks(aws, run)} == {UNKNOWN}
    elif ask == "thorough":
        spec: Any = load_today(CONFIG).specs["aws"]
        request = aws_provider.PROVIDER.base_request(spec.settings, spec.offered_image)
        found = aws_checks.thorough_checks(spec, request, run)
        assert {check.verdict for check in found} == {UNKNOWN}
        assert all("the limit of 120 seconds has passed" in check.message for check in found[1:-1])
        # Nothing is tried again in vain.
        assert sum(waited) < 2 * each_s + 5
    else:
        place = Place(region="us-east-1", auth=Auth())
        with pytest.raises(RefusedError, match="reading the account"):
            aws_provider.leftovers(place, run, Deadline())
    assert next(asked) == most


def test_all_places_of_dead_runs_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def leftovers(_place: object, _run: object, until: object) -> Remains:
        given.append(until)
        return Remains(())

    cloud = dataclasses.replace(aws_provider.PROVIDER, leftovers=leftovers)
    monkeypatch.setattr(sweep, "provider", lambda _: cloud)
    places = [sweep.Place("aws", "aws", {"region": region, "auth": {}}) for region in ("a", "b")]
    monkeypatch.setattr(sweep, "places_of", lambda _: places)
    sweep.leftovers_of([], Run({}, {}, "", console=Console(io.StringIO(), plain=True)))
    assert len(given) == 2
    assert isinstance(given[0], Deadline)
    assert given[0] is given[1]
