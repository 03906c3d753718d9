"""Base images and our own images on AWS, against moto: EC2's own filters and answers."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, ImagegenError, PublishError, RefusedError, UnavailableError
from imagegen.plan.model import BuildPart, BuildPlan, ImagePart
from imagegen.providers import CloudImage, RunFacts
from imagegen.providers.aws import images
from imagegen.providers.aws import provider as aws
from imagegen.providers.aws.client import ec2_clients
from imagegen.providers.aws.faults import explain_errors
from imagegen.providers.aws.settings import Auth, Settings
from imagegen.providers.time_limits import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("cloud_descriptions")

ENVIRON = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret"}
REGION = "eu-west-1"
CONSOLE = Console(io.StringIO(), plain=True)
SETTINGS = Settings.model_validate({"region": REGION, "network": {"allowed_cidrs": ["192.0.2.0/24"]}})
NO_AUTH = Auth()


def plan_of(settings: Settings = SETTINGS) -> BuildPlan[Settings]:
    return BuildPlan(
        ImagePart("aws", {}, {}, {"kubernetes": "1.35.6"}, (), {}, {}, {}),
        BuildPart("node", "aws", {}, {}, {}, {}, {}, {}),
        settings,
        360,
    )


PLAN = plan_of()


@pytest.fixture
def ec2() -> Iterator[Any]:
    # Here and not above: moto takes a second of every process that reads the tests.
    import boto3
    import moto

    with moto.mock_aws(config={"core": {"mock_credentials": True}}):
        client = boto3.client("ec2", region_name=REGION)
        yield client
        client.close()


def run(**labels: str) -> RunFacts:
    return RunFacts(ENVIRON, labels, "2026-11-18T10:00:00Z")


def register(ec2: Any, name: str, **tags: str) -> str:  # noqa: ANN401 - moto's client is boto3's
    ami: str = ec2.register_image(Name=name)["ImageId"]
    if tags:
        ec2.create_tags(Resources=[ami], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
    return ami


@pytest.fixture
def _amazon_offers_images(monkeypatch: pytest.MonkeyPatch) -> None:
    # moto's own samples.
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "true")


@pytest.mark.usefixtures("_amazon_offers_images")
def test_the_newest_base_image_that_fits_is_locked(ec2: Any) -> None:  # noqa: ANN401 - as above
    request = {"region": REGION, "name": "Windows_Server-2016-English-Full-*-2017*", "owner": "amazon"}
    offered = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": [request["name"]]}])["Images"]
    assert len(offered) > 1

    locked = aws.look_up_base(SETTINGS, request, run())

    newest = max(offered, key=lambda image: (image["CreationDate"], image["Name"]))
    assert locked.request == request
    assert locked.identity == {"owner": "amazon", "name": newest["Name"]}
    assert locked.place == {"region": REGION, "ami_id": newest["ImageId"]}


def offers(*offered: dict[str, Any]) -> Any:  # noqa: ANN401 - as much of a client as a look-up needs
    class Ec2:
        def describe_images(self, **_: object) -> dict[str, Any]:
            return {"Images": [{"Platform": "windows", "RootDeviceName": "/dev/sda1"} | image for image in offered]}

    return Ec2()


def test_newest_is_by_creation_and_not_by_name() -> None:
    old = {"Name": "Windows-2026.11.99", "ImageId": "ami-1", "CreationDate": "2026-10-01T00:00:00.000Z"}
    new = {"Name": "Windows-2026.11.11", "ImageId": "ami-2", "CreationDate": "2026-11-01T00:00:00.000Z"}
    request = {"region": REGION, "name": "Windows-*", "owner": "111122223333"}
    locked = images.look_up_base(offers(new, old), request, SETTINGS)
    assert locked.place["ami_id"] == "ami-2"
    assert locked.identity == {"owner": "111122223333", "name": "Windows-2026.11.11"}


@pytest.mark.parametrize("fact", [{"Platform": None}, {"RootDeviceName": "/dev/xvda"}], ids=str)
def test_a_base_image_that_the_template_cannot_start_is_refused(fact: dict[str, Any]) -> None:
    image = {"Name": "mine", "ImageId": "ami-1", "CreationDate": "2026-11-01T00:00:00.000Z", **fact}
    with pytest.raises(ConfigError, match="mine, ami-1, is not Windows with its disk at /dev/sda1"):
        images.look_up_base(offers(image), {"region": REGION, "name": "mine", "owner": "self"}, SETTINGS)


@pytest.mark.parametrize(
    ("asked", "other", "refused"),
    [
        ({"encryption": {}}, {"Ebs": {"SnapshotId": "snap-1", "Encrypted": False}}, True),
        ({"encryption": {}}, {"Ebs": {"SnapshotId": "snap-1"}}, True),
        ({"encryption": {}}, {"Ebs": {"SnapshotId": "snap-1", "Encrypted": True}}, False),
        ({"encryption": {}}, {"VirtualName": "ephemeral0"}, False),
        ({}, {"Ebs": {"SnapshotId": "snap-1", "Encrypted": False}}, False),
    ],
    ids=str,
)
def test_where_all_is_to_be_encrypted_a_base_image_with_another_plain_disk_is_refused(
    asked: dict[str, Any], other: dict[str, Any], refused: bool
) -> None:
    disks = [{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": "snap-0"}}, {"DeviceName": "xvdb", **other}]
    image = {
        "Name": "mine",
        "ImageId": "ami-1",
        "CreationDate": "2026-11-01T00:00:00.000Z",
        "BlockDeviceMappings": disks,
    }
    request = {"region": REGION, "name": "mine", "owner": "self"}
    expected = pytest.raises(ConfigError, match="disks of the base image mine, ami-1, stay unencrypted: xvdb")
    with expected if refused else contextlib.nullcontext():
        images.look_up_base(offers(image), request, Settings(region=REGION, **asked))


@pytest.mark.parametrize(("fact", "refused"), [({"Encrypted": True}, False), ({}, True)], ids=str)
def test_an_image_that_was_built_without_the_encryption_of_the_config_is_refused(
    fact: dict[str, object], refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = {"ImageId": "ami-1", "Name": "node-1", "State": "available", **disk(**fact)}
    monkeypatch.setattr(images, "wait_until_shown", lambda *_: image)
    plan = plan_of(Settings(region=REGION, encryption={}))  # type: ignore[arg-type] # as a config has it
    expected = pytest.raises(PublishError, match="ami-1 in eu-west-1 has a disk that is not encrypted")
    with expected if refused else contextlib.nullcontext():
        assert aws.read_built(plan, f"{REGION}:ami-1", run()) is not None


@pytest.mark.usefixtures("ec2")
def test_a_base_image_that_is_not_offered_is_the_configs_fault() -> None:
    request = {"region": REGION, "name": "Windows_Server-1999-*", "owner": "amazon"}
    with pytest.raises(ConfigError, match=r"no base image Windows_Server-1999-\* of amazon in eu-west-1") as raised:
        aws.look_up_base(SETTINGS, request, run())
    assert "Amazon still offers this Windows release" in raised.value.hint
    with pytest.raises(ConfigError, match="no base image mine of self in eu-west-1") as raised:
        aws.look_up_base(SETTINGS, {**request, "name": "mine", "owner": "self"}, run())
    assert "Amazon" not in raised.value.hint


def test_what_is_found_as_built_is_decided_by_identity_and_labels(ec2: Any) -> None:  # noqa: ANN401 - as above
    register(ec2, "stranger", imagegen_image_id="f" * 64)
    register(ec2, "untagged")
    assert aws.find_built(PLAN, run()).image is None

    plain = register(ec2, "plain", imagegen_image_id=PLAN.image_id)
    rehearsed = register(ec2, "rehearsed", imagegen_image_id=PLAN.image_id, imagegen_label_rehearsal="true")

    found = aws.find_built(PLAN, run()).image
    assert found is not None
    assert (found.id, found.region, found.name, found.state) == (plain, REGION, "plain", "available")
    labelled = aws.find_built(PLAN, run(rehearsal="true")).image
    assert labelled is not None
    assert labelled.id == rehearsed
    assert aws.find_built(PLAN, run(rehearsal="false")).image is None
    assert aws.find_built(PLAN, run(rehearsal="true", who="me")).image is None


def test_a_rejected_image_is_disabled_named_and_found_only_where_there_is_no_other(
    ec2: Any,  # noqa: ANN401 - as above
) -> None:
    worn, made = {"imagegen_image_id": PLAN.image_id, "imagegen_name": "node", "imagegen_run_id": "run-1"}, list[str]()
    for name in ("first", "second"):
        made.append(register(ec2, name, **worn))
        found = aws.find_built(PLAN, run())
        assert found.image == CloudImage(made[-1], REGION, name, "available", runs="run-1")
        # The one before it is named.
        assert [text.partition(" ")[0] for text in found.unusable] == made[:-1]
        aws.mark(PLAN, found.image, "rejected", run())
    assert {image["State"] for image in ec2.describe_images(ImageIds=made)["Images"]} == {"disabled"}
    left = aws.find_built(PLAN, run())
    assert left.image is not None
    assert (left.image.state, left.image.report) == ("disabled", "rejected")
    assert left.unusable[0] == (
        f"{made[0]} in {REGION} was rejected, because the report of its machine was not as planned. It is disabled. "
        f"To delete it: `aws ec2 deregister-image --region {REGION} --image-id {made[0]} --delete-associated-snapshots`"
    )
    # An image of another config, and one of a rehearsal, are none of this run's.
    other = dataclasses.replace(PLAN, build=dataclasses.replace(PLAN.build, name="other"))
    assert aws.find_built(other, run()).unusable == aws.find_built(PLAN, run(rehearsal="true")).unusable == ()


@pytest.mark.parametrize("denied", ["create_tags", "disable_image"])
def test_a_rejected_image_is_disabled_and_tagged_whichever_is_denied(
    denied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def call(name: str) -> None:
        asked.append(name)
        if name == denied:
            answer: Any = {"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}
            raise botocore.exceptions.ClientError(answer, name)

    ec2 = SimpleNamespace(create_tags=lambda **_: call("create_tags"), disable_image=lambda **_: call("disable_image"))
    monkeypatch.setattr(aws, "ec2_clients", lambda *_: contextlib.nullcontext(lambda _: ec2))
    with pytest.raises(PublishError, match="UnauthorizedOperation"):
        aws.mark(PLAN, CloudImage("ami-1", REGION, "node", "available"), "rejected", run())
    assert asked == ["disable_image", "create_tags"]


def test_an_accepted_image_comes_before_one_that_nobody_judged() -> None:
    newest_first: Any = [
        {"ImageId": f"ami-{verdict}", "State": "available", "Tags": [{"Key": "imagegen_report", "Value": verdict}]}
        for verdict in ("rejected", "", "accepted", "accepted")
    ]
    for expected in ("ami-accepted", "ami-", "ami-rejected"):
        found = images.newest_usable(newest_first)
        assert found is not None
        assert found["ImageId"] == expected
        newest_first = [image for image in newest_first if image["ImageId"] != expected]


@pytest.mark.parametrize(
    "artifact",
    ["ap-eu-west-1:ami-0,eu-central-1:ami-1,{0}:{1}", "--> amazon-ebs.image: AMIs were created:\n{0}: {1}\n"],
)
def test_what_packer_built_is_the_ami_that_it_names(ec2: Any, artifact: str) -> None:  # noqa: ANN401 - as above
    ami = register(ec2, "ours", imagegen_image_id=PLAN.image_id)
    register(ec2, "theirs, and newer", imagegen_image_id=PLAN.image_id)
    built = aws.read_built(PLAN, artifact.format(REGION, ami), run())
    assert built == CloudImage(ami, REGION, "ours", "available")
    assert aws.read_built(PLAN, f"us-east-1:{ami}", run()) is None


@pytest.mark.parametrize("looks", [4, 1000])
def test_an_ami_that_is_not_shown_yet_is_waited_for_a_while(looks: int) -> None:
    now, seen, image = [0.0], itertools.count(1), {"ImageId": "ami-1"}

    def describe_images(**_: object) -> dict[str, Any]:
        return {"Images": [image] if next(seen) >= looks else []}

    def pause(seconds: float) -> None:
        now[0] += seconds

    ec2: Any = SimpleNamespace(describe_images=describe_images)
    clock = Clock(now=lambda: now[0], pause=pause)
    if looks == 4:
        assert images.wait_until_shown(ec2, "ami-1", REGION, clock) == image
    else:
        with pytest.raises(PublishError, match=f"ami-1 in {REGION} was built, but EC2 does not show it"):
            images.wait_until_shown(ec2, "ami-1", REGION, clock)
        assert now == [images.APPEARING_LIMIT_S]


@pytest.mark.usefixtures("ec2")
def test_publishing_goes_through_the_real_client() -> None:
    with ec2_clients(ENVIRON, NO_AUTH) as clients:
        source = clients(REGION).register_image(Name="node-1")["ImageId"]
        tags = [{"Key": "imagegen_image_id", "Value": PLAN.image_id}]
        clients(REGION).create_tags(Resources=[source], Tags=tags)  # type: ignore[arg-type] # plain dicts are TagTypeDefs
    built = aws.find_built(PLAN, run()).image
    assert built is not None
    published = aws.publish(PLAN, built, run(), CONSOLE)
    assert [(image.region, image.id) for image in published.images] == [(REGION, source)]
    assert published.made == 0


def disk(**facts: object) -> dict[str, Any]:
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": facts}, {"DeviceName": "xvdca"}]}


@pytest.mark.parametrize(
    ("asked", "facts", "is_it"),
    [
        ({}, disk(), True),
        ({"encryption": {}}, disk(Encrypted=True), True),
        ({"encryption": {}}, disk(Encrypted=False), False),
        ({"encryption": {}}, {**disk(), "State": "pending"}, True),
        ({"require_imds_tokens": True}, {"ImdsSupport": "v2.0"}, True),
        ({"require_imds_tokens": True}, {}, False),
    ],
    ids=str,
)
def test_an_image_made_before_something_was_asked_for_is_not_the_one(
    asked: dict[str, Any], facts: dict[str, Any], is_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = [{"Key": "Name", "Value": "node-1"}]
    image: Any = {"ImageId": "ami-1", "Name": "node-1", "State": "available", "Tags": tags, **facts}
    monkeypatch.setattr(images, "images_of", lambda *_: [image])
    monkeypatch.setattr(images, "rejected_images", lambda *_: [])
    found = aws.find_built(plan_of(Settings(region=REGION, **asked)), run()).image
    assert (found is not None) == is_it


@pytest.mark.parametrize(
    ("code", "kinds", "says"),
    [
        ("ExpiredToken", (ConfigError, PublishError), "rejects the credentials: ExpiredToken"),
        ("AuthFailure", (ConfigError, PublishError), "rejects the credentials: AuthFailure"),
        ("UnauthorizedOperation", (RefusedError, PublishError), "UnauthorizedOperation: no"),
        ("RequestLimitExceeded", (UnavailableError, PublishError), "RequestLimitExceeded: no"),
    ],
)
def test_answers_become_errors_with_a_hint_and_the_request_id(
    code: str, kinds: tuple[type[ImagegenError], ...], says: str
) -> None:
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"RequestId": "req-1"}}
    for kind, failure in zip(kinds, (RefusedError, PublishError), strict=True):
        fault = botocore.exceptions.ClientError(answer, "CopyImage")
        fault.add_note("every attempt failed for 30 minutes")
        with pytest.raises(kind, match=says) as raised, explain_errors("copying", failure):
            raise fault
        assert type(raised.value) is kind
        assert raised.value.details == ("request id: req-1", "every attempt failed for 30 minutes")
        assert raised.value.hint


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (botocore.exceptions.NoCredentialsError(), ConfigError),
        (botocore.exceptions.ProfileNotFound(profile="mine"), ConfigError),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="https://ec2.invalid"), UnavailableError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_faults_of_the_sdk_become_errors(fault: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="looking: ") as raised, explain_errors("looking", RefusedError):
        raise fault
    assert type(raised.value) is kind


def test_a_profile_that_does_not_exist_is_the_operators_to_mend(tmp_path: Path) -> None:
    files = {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}
    request = {"region": REGION, "name": "any", "owner": "amazon"}
    with pytest.raises(ConfigError, match="no usable AWS credentials") as raised:
        aws.look_up_base(SETTINGS, request, RunFacts({"AWS_PROFILE": "nobody", **files}, {}, ""))
    assert "AWS_PROFILE" in raised.value.hint
