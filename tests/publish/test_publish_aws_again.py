"""Publishing again and again, against the rehearsal's EC2: its own client tokens, names and answers."""

from __future__ import annotations

import contextlib
import urllib.parse
from typing import TYPE_CHECKING, Any, cast

import pytest

from imagegen.providers import CloudImage, RunFacts
from imagegen.providers.aws import provider
from imagegen.providers.aws.client import ec2_clients
from imagegen.providers.aws.publish import publish
from imagegen.providers.aws.settings import Auth, Settings
from imagegen.rehearsal.network.messages import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from mypy_boto3_ec2.client import EC2Client

    from imagegen.base.console import Console
    from imagegen.plan.model import BuildPlan

pytestmark = pytest.mark.usefixtures("cloud_descriptions")

HOME, AWAY = "us-east-1", "eu-west-1"


@pytest.fixture
def clients(aws_answer: Callable[[int, bytes], AWSResponse]) -> Iterator[Callable[[str], EC2Client]]:
    """The product's own clients, whose requests the rehearsal answers."""
    # Here and not above: this brings moto, which takes a second of every process that reads the tests.
    from imagegen.rehearsal.clouds.aws.cloud import Aws, AwsOptions

    aws = Aws(AwsOptions(regions=(HOME, AWAY)), lambda _: None)

    def answer(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        url, body = urllib.parse.urlsplit(request.url), request.body
        assert isinstance(body, str)
        # The stubs know no bytes here, and the SDK has some.
        sent: Any = request.headers
        headers = {key.lower(): value if isinstance(value, str) else value.decode() for key, value in sent.items()}
        told = aws(Request(request.method, url.hostname or "", url.path, {}, headers, body.encode(), url.path))
        assert not told.fault
        return aws_answer(told.status, told.body)

    with aws, ec2_clients(aws.credentials, Auth()) as made:

        def client(region: str) -> EC2Client:
            client = made(region)
            # botocore's stubs think that a hook answers nothing; this one's answer is taken instead of the network's.
            client.meta.events.register("before-send", cast("Callable[..., None]", answer), unique_id="rehearsal")
            return client

        yield client


def test_a_copy_that_was_deregistered_is_made_again_and_then_kept(
    clients: Callable[[str], EC2Client],
    make_plan: Callable[..., BuildPlan[Settings]],
    console: Console,
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    asked = Settings.model_validate({"region": HOME, "publish": {"regions": [AWAY]}})
    plan = make_plan("aws", asked)
    ami = clients(HOME).register_image(Name="node-1", RootDeviceName="/dev/sda1")["ImageId"]
    clients(HOME).create_tags(Resources=[ami], Tags=[{"Key": "imagegen_image_id", "Value": plan.image_id}])
    built = CloudImage(ami, HOME, "node-1", "available")

    def published(hour: int) -> tuple[str, int]:
        run = RunFacts({}, {}, f"2026-11-18T{hour}:00:00Z")
        result = publish(clients, plan, built, run, console, journal.clock())
        assert [image.region for image in result.images] == [HOME, AWAY]
        return result.images[1].id, result.made

    first, made = published(11)
    assert made == 1
    clients(AWAY).deregister_image(ImageId=first)
    second, made = published(12)
    assert (made, second != first) == (1, True)
    assert published(13) == (second, 0)
    clients(AWAY).deregister_image(ImageId=second)
    third, made = published(14)
    assert (made, third in (first, second)) == (1, False)
    [there] = clients(AWAY).describe_images(ImageIds=[third])["Images"]
    assert {"Key": "imagegen_image_id", "Value": plan.image_id} in there["Tags"]


def test_cluster_api_does_not_find_a_rejected_image(
    clients: Callable[[str], EC2Client],
    make_plan: Callable[..., BuildPlan[Settings]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = make_plan("aws", Settings(region=HOME))
    ec2 = clients(HOME)
    ami = ec2.register_image(Name="capa-ami-windows-2022-v1.35.6-1", RootDeviceName="/dev/sda1")["ImageId"]
    named = {"Name": "name", "Values": ["capa-ami-windows-2022-?v1.35.6-*", "capa-ami-windows-2022-v1.35.6-*"]}
    # Whatever its tags are. It asks for the state too, but a disabled image is not even shown.
    lookup: Any = {"Owners": ["self"], "Filters": [named]}
    assert [image["ImageId"] for image in ec2.describe_images(**lookup)["Images"]] == [ami]
    monkeypatch.setattr(provider, "ec2_clients", lambda *_: contextlib.nullcontext(clients))
    image = CloudImage(ami, HOME, "capa-ami-windows-2022-v1.35.6-1", "available")
    provider.mark(plan, image, "rejected", RunFacts({}, {}, ""))
    assert ec2.describe_images(**lookup)["Images"] == []
    assert [found["State"] for found in ec2.describe_images(**lookup, IncludeDisabled=True)["Images"]] == ["disabled"]
