"""What is a leftover of a build on AWS, what is not although it wears our tags, and in which order things go."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import botocore.exceptions
import pytest

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.aws import leftovers, provider
from imagegen.providers.aws.settings import Place, Publish, Settings
from imagegen.providers.time_limits import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_ec2.client import EC2Client

    from imagegen.providers import Leftover

LONG_AGO = "2026-01-01T00:00:00Z"
RUN, UNTIL = "20261118t100000z-1a2b3c", "2026-11-18T16:00:00Z"
AMI = "ami-0123456789abcdef0"


def tags(until: str = UNTIL, **more: str) -> list[dict[str, str]]:
    worn = {"imagegen_run_id": RUN, "imagegen_expires_at": until, **more}
    return [{"Key": key, "Value": value} for key, value in worn.items()]


def image(name: str, state: str, until: str = UNTIL, **facts: Any) -> dict[str, Any]:  # noqa: ANN401 - EC2's own fields
    shown = {"Tags": tags(until, Name="capa-ami-windows-2022"), "BlockDeviceMappings": [], **facts}
    return {"ImageId": f"ami-{name}", "Name": name, "State": state, **shown}


def captured(until: str = LONG_AGO, **more: str) -> dict[str, Any]:
    """An image that a build of imagegen captured. It has no verdict yet."""
    worn = tags(until, Name="capa-ami-windows-2022", imagegen_version="0.1.0", **more)
    return image("capa-ami-windows-2022", "available", until, Tags=worn)


def fault(code: str) -> botocore.exceptions.ClientError:
    return botocore.exceptions.ClientError({"Error": {"Code": code, "Message": "no"}}, "Anything")


class EC2:
    """Answers by what is asked, keeps what it was told, and may refuse a call a few times."""

    def __init__(self, **answers: list[dict[str, Any]]) -> None:
        self.answers = answers
        self.told: list[str] = []
        self.refusals: dict[str, list[str]] = {}

    def get_paginator(self, name: str) -> Any:  # noqa: ANN401 - a paginator of any call
        if name == "describe_images":
            return SimpleNamespace(paginate=lambda **words: iter([self.describe_images(**words)]))
        return SimpleNamespace(paginate=lambda **_: iter([self._page(name)]))

    def describe_key_pairs(self, **_: object) -> dict[str, Any]:
        return self._page("describe_key_pairs")

    def delete_key_pair(self, *, KeyPairId: str) -> None:
        self.told.append(f"delete_key_pair {KeyPairId}")
        if not self.refusals.get("delete_key_pair"):
            self.answers["KeyPairs"] = []

    def describe_images(self, **asked: Any) -> dict[str, Any]:  # noqa: ANN401 - EC2's own parameters
        shown = self._page("describe_images")["Images"]
        # EC2 keeps quiet about the disabled ones unless it is asked for them.
        return {"Images": [each for each in shown if each["State"] != "disabled" or asked.get("IncludeDisabled")]}

    def describe_instances(self, **_: object) -> dict[str, Any]:
        states = self.answers["states"]
        return {"Reservations": [{"Instances": [states.pop(0) if len(states) > 1 else states[0]]}]}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever removes something
        def call(**words: Any) -> None:  # noqa: ANN401 - EC2's own parameters
            if self.refusals.get(name):
                raise fault(self.refusals[name].pop(0))
            [first, *_] = words.values()
            self.told.append(f"{name} {first if isinstance(first, str) else ' '.join(first)}")

        return call

    def _page(self, name: str) -> dict[str, Any]:
        keys = {
            "describe_images": "Images",
            "describe_instances": "Reservations",
            "describe_key_pairs": "KeyPairs",
            "describe_launch_templates": "LaunchTemplates",
            "describe_network_interfaces": "NetworkInterfaces",
            "describe_security_groups": "SecurityGroups",
            "describe_snapshots": "Snapshots",
            "describe_spot_instance_requests": "SpotInstanceRequests",
            "describe_volumes": "Volumes",
        }
        if self.refusals.get(name):
            raise fault(self.refusals[name][0])
        return {keys[name]: self.answers.get(keys[name], [])}


def client(ec2: EC2) -> EC2Client:
    return cast("EC2Client", ec2)


def found_in(ec2: EC2) -> tuple[Leftover, ...]:
    remains = leftovers.find(lambda _: client(ec2), "us-east-1")
    assert remains.faults == ()
    return remains.leftovers


def found(ec2: EC2) -> list[str]:
    return [leftover.id for leftover in found_in(ec2)]


@pytest.mark.parametrize(
    ("shown", "goes"),
    [
        (image("capa-ami-windows-2022", "pending"), True),
        (image("capa-ami-windows-2022", "failed"), True),
        (image("capa-ami-windows-2022", "invalid"), True),
        (image("capa-ami-windows-2022", "available"), False),
        (image("a1B2c3D", "available"), False),
        (image("renamed by its owner", "available"), False),
        (image("capa-ami-windows-2022", "disabled"), False),
        (image("capa-ami-windows-2022", "failed", "never"), False),
        (captured(), True),
        (captured("2099-01-01T00:00:00Z"), False),
        (captured("never"), False),
        (captured(imagegen_report="accepted"), False),
        (image("capa-ami-windows-2022", "available", LONG_AGO), False),
        (image("capa-ami-windows-2022", "failed", Tags=[]), False),
    ],
)
def test_an_image_is_left_over_while_it_is_unfinished_or_nobody_judged_it(shown: dict[str, Any], goes: bool) -> None:
    assert found(EC2(Images=[shown])) == ([shown["ImageId"]] if goes else [])


@pytest.mark.parametrize(("until", "used", "goes"), [(UNTIL, "", True), (UNTIL, "snap-1", False), ("never", "", False)])
def test_a_snapshot_is_left_over_when_no_image_uses_it_and_none_ever_finished(
    until: str, used: str, goes: bool
) -> None:
    disks = [{"Ebs": {"SnapshotId": used}}] if used else [{"VirtualName": "ephemeral0"}]
    images = [image("capa-ami-windows-2022", "available", BlockDeviceMappings=disks)]
    ec2 = EC2(Images=images, Snapshots=[{"SnapshotId": "snap-1", "State": "completed", "Tags": tags(until)}])
    assert found(ec2) == (["snap-1"] if goes else [])


def test_a_list_that_is_refused_hides_no_other() -> None:
    group = {"GroupId": "sg-1", "GroupName": "packer_1", "Tags": tags()}
    ec2 = EC2(SecurityGroups=[group], Snapshots=[{"SnapshotId": "snap-1", "State": "completed", "Tags": tags()}])
    # A snapshot may be an image's that is not shown.
    ec2.refusals = {"describe_spot_instance_requests": ["UnauthorizedOperation"], "describe_images": ["InternalError"]}
    remains = leftovers.find(lambda _: client(ec2), "us-east-1")
    assert [leftover.id for leftover in remains.leftovers] == ["sg-1"]
    assert [fault.message for fault in remains.faults] == [
        "looking for spot requests in us-east-1: UnauthorizedOperation: no",
        "looking for images and snapshots in us-east-1: InternalError: no",
    ]


def test_whose_credentials_are_rejected_asks_once() -> None:
    ec2 = EC2()
    ec2.refusals = {"describe_spot_instance_requests": ["AuthFailure"], "describe_images": ["AuthFailure"]}
    [told] = leftovers.find(lambda _: client(ec2), "us-east-1").faults
    assert isinstance(told, ConfigError)


def test_the_snapshots_of_a_disabled_image_are_used() -> None:
    disks = [{"Ebs": {"SnapshotId": "snap-1"}}]
    images = [image("capa-ami-windows-2022", "disabled", "never", BlockDeviceMappings=disks)]
    assert found(EC2(Images=images, Snapshots=[{"SnapshotId": "snap-1", "State": "completed", "Tags": tags()}])) == []


def test_the_snapshots_of_an_unfinished_image_go_only_with_it() -> None:
    made = {"SnapshotId": "snap-1", "State": "pending", "Tags": tags()}
    made["Description"] = f"Created by CreateImage(i-0123456789abcdef0) for {AMI}"
    shown = image("capa-ami-windows-2022", "pending", ImageId=AMI)
    assert found(EC2(Images=[shown], Snapshots=[made])) == [AMI]


@pytest.mark.parametrize(
    "now",
    [
        image("capa-ami-windows-2022", "available"),
        image("capa-ami-windows-2022", "disabled", "never"),
        image("capa-ami-windows-2022", "pending", Tags=[*tags(), {"Key": "imagegen_run_id", "Value": "another"}]),
        image("capa-ami-windows-2022", "pending", "2026-11-18T18:00:00Z"),
    ],
)
def test_an_image_that_is_no_leftover_any_more_is_kept(now: dict[str, Any]) -> None:
    ec2 = EC2(Images=[image("capa-ami-windows-2022", "pending")])
    [leftover] = found_in(ec2)
    ec2.answers["Images"] = [now]
    [(_, why_not)] = leftovers.remove(client(ec2), [leftover], clock([]))
    assert why_not == f"it is no longer a leftover: it is {now['State']} now"
    assert ec2.told == []


def test_an_image_that_was_judged_since_it_was_listed_is_kept() -> None:
    ec2 = EC2(Images=[captured()])
    [leftover] = found_in(ec2)
    ec2.answers["Images"] = [captured(imagegen_report="accepted")]
    [(_, why_not)] = leftovers.remove(client(ec2), [leftover], clock([]))
    assert why_not == "it is no longer a leftover: it is available now"
    assert ec2.told == []


def copy_of(run: str, state: str, **facts: Any) -> dict[str, Any]:  # noqa: ANN401 - EC2's own fields
    worn = [*tags("never", Name="capa-ami-windows-2022"), {"Key": "imagegen_run_id", "Value": run}]
    return image("copy", state, **{"CreationDate": "2026-11-18T10:00:00.000Z", "Tags": worn, **facts})


@pytest.mark.parametrize(
    ("shown", "goes"),
    [
        (copy_of(RUN, "failed"), True),
        (copy_of(RUN, "pending"), False),
        (copy_of(RUN, "available"), False),
        (copy_of(RUN, "failed", Tags=[{"Key": "Name", "Value": "capa-ami-windows-2022"}]), False),
    ],
)
def test_a_copy_that_failed_is_left_over_where_images_are_copied_to(shown: dict[str, Any], goes: bool) -> None:
    home, away = EC2(), EC2(Images=[shown])
    regions = {"us-east-1": home, "eu-west-1": away}
    remains = leftovers.find(lambda region: client(regions[region]), "us-east-1", ["eu-west-1"])
    assert remains.faults == ()
    found = [(it.kind, it.id, it.region, it.run_id, it.expires_at) for it in remains.leftovers]
    # No run waits longer than two hours for a copy.
    assert found == ([("copied image", "ami-copy", "eu-west-1", RUN, "2026-11-18T12:00:00Z")] if goes else [])


def test_what_another_build_has_in_a_region_that_is_copied_to_is_ignored() -> None:
    regions = {"us-east-1": EC2(), "eu-west-1": everything()}
    # Another config may build there. Its image does not list its snapshot yet.
    made = {"SnapshotId": "snap-1", "State": "pending", "Tags": tags()}
    made["Description"] = f"Created by CreateImage(i-0123456789abcdef0) for {AMI}"
    regions["eu-west-1"].answers |= {
        "Images": [image("capa-ami-windows-2022", "pending", ImageId=AMI)],
        "Snapshots": [made],
    }
    assert leftovers.find(lambda region: client(regions[region]), "us-east-1", ["eu-west-1"]).leftovers == ()


def test_a_region_that_refuses_hides_no_other() -> None:
    refused, away = EC2(), EC2(Images=[copy_of(RUN, "failed")])
    refused.refusals = {"describe_images": ["OptInRequired"]}
    regions = {"us-east-1": EC2(), "me-south-1": refused, "eu-west-1": away}
    remains = leftovers.find(lambda region: client(regions[region]), "us-east-1", ["me-south-1", "eu-west-1"])
    assert [leftover.id for leftover in remains.leftovers] == ["ami-copy"]
    assert [fault.message for fault in remains.faults] == ["looking for copied images in me-south-1: OptInRequired: no"]


@pytest.mark.parametrize("now", [copy_of(RUN, "available"), copy_of("another", "failed")])
def test_a_copy_that_is_no_leftover_any_more_is_kept(now: dict[str, Any]) -> None:
    away = EC2(Images=[copy_of(RUN, "failed")])
    [leftover] = leftovers.find(lambda _: client(away), "us-east-1", ["eu-west-1"]).leftovers
    away.answers["Images"] = [now]
    [(_, why_not)] = leftovers.remove(client(away), [leftover], clock([]))
    assert why_not == f"it is no longer a leftover: it is {now['State']} now"
    assert away.told == []


def test_a_failed_copy_goes_with_its_snapshots_in_its_own_region(monkeypatch: pytest.MonkeyPatch) -> None:
    home, away = EC2(), EC2(Images=[copy_of(RUN, "failed", ImageId=AMI)])
    made = f"Copied for DestinationAmi {AMI} from SourceAmi ami-0fedcba987654321 for SourceSnapshot s"
    who = SimpleNamespace(get_caller_identity=lambda: {"Account": "222233334444"})
    clients: dict[tuple[str, str], Any] = {
        ("sts", "us-east-1"): who,
        ("ec2", "us-east-1"): home,
        ("ec2", "eu-west-1"): away,
    }
    opened = contextlib.nullcontext(lambda *asked: clients[asked])
    monkeypatch.setattr(provider, "service_clients", lambda *_, **_options: opened)
    run = RunFacts({}, {}, "")
    regions = ["us-east-1", "eu-west-1"]
    place = provider.place(Settings(region="us-east-1", publish=Publish(regions=regions)), run)
    going = provider.leftovers(place, run, None).leftovers
    away.answers["Snapshots"] = [{"SnapshotId": "snap-1", "State": "completed", "Tags": [], "Description": made}]
    assert list(provider.remove(place, going, run)) == [(going[0], "")]
    assert home.told == []
    assert away.told == ["create_tags snap-1", f"deregister_image {AMI}", "delete_snapshot snap-1"]


def test_a_journal_of_an_earlier_version_names_no_region_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: dict[tuple[str, str], Any] = {
        ("sts", "us-east-1"): SimpleNamespace(get_caller_identity=lambda: {"Account": "222233334444"}),
        ("ec2", "us-east-1"): EC2(Images=[image("capa-ami-windows-2022", "pending")]),
    }
    opened = contextlib.nullcontext(lambda *asked: clients[asked])
    monkeypatch.setattr(provider, "service_clients", lambda *_, **_options: opened)
    place = Place.model_validate({"region": "us-east-1", "auth": {"profile": None, "assume_role": None}})
    assert len(provider.leftovers(place, RunFacts({}, {}, ""), None).leftovers) == 1


def test_an_image_that_is_gone_is_removed() -> None:
    ec2 = EC2(Images=[image("capa-ami-windows-2022", "pending")])
    [leftover] = found_in(ec2)
    ec2.answers["Images"] = []
    assert list(leftovers.remove(client(ec2), [leftover], clock([]))) == [(leftover, "")]
    assert ec2.told == []


def test_a_deregistered_images_snapshots_are_marked_first_and_deleted_after_it() -> None:
    described = {
        "snap-made": f"Created by CreateImage(i-0123456789abcdef0) for {AMI}",
        "snap-copied": f"Copied for DestinationAmi {AMI} from SourceAmi ami-0fedcba987654321 for SourceSnapshot s",
        "snap-theirs": f"before the change of {AMI}",
        "snap-longer": f"Created by CreateImage(i-0123456789abcdef0) for {AMI}1",
    }
    snapshots = [{"SnapshotId": name, "Description": text, "Tags": []} for name, text in described.items()]
    shown = image("capa-ami-windows-2022", "pending", ImageId=AMI)
    shown["BlockDeviceMappings"] = [{"Ebs": {"SnapshotId": "snap-made"}}]
    ec2 = EC2(Images=[shown])
    [leftover] = found_in(ec2)
    ec2.answers["Snapshots"] = snapshots
    assert list(leftovers.remove(client(ec2), [leftover], clock([]))) == [(leftover, "")]
    assert ec2.told == [
        "create_tags snap-made snap-copied",
        f"deregister_image {AMI}",
        "delete_snapshot snap-made",
        "delete_snapshot snap-copied",
    ]


def clock(pauses: list[float]) -> Clock:
    return Clock(now=lambda: sum(pauses), pause=pauses.append)


def everything() -> EC2:
    worn = tags()
    machine = {"InstanceId": "i-1", "State": {"Name": "stopped"}, "Tags": worn}
    over = {**machine, "InstanceId": "i-0", "State": {"Name": "terminated"}}
    return EC2(
        SpotInstanceRequests=[
            {"SpotInstanceRequestId": "sir-1", "State": "active", "Tags": worn},
            {"SpotInstanceRequestId": "sir-0", "State": "closed", "Tags": worn},
        ],
        Reservations=[{"Instances": [machine, over]}],
        LaunchTemplates=[{"LaunchTemplateId": "lt-1", "LaunchTemplateName": "packer-fleet", "Tags": worn}],
        Volumes=[{"VolumeId": f"vol-{state}", "State": state, "Tags": worn} for state in ("available", "in-use")],
        NetworkInterfaces=[
            {"NetworkInterfaceId": f"eni-{state}", "Status": state, "TagSet": worn} for state in ("available", "in-use")
        ],
        SecurityGroups=[{"GroupId": "sg-1", "GroupName": "packer_1", "Tags": worn}],
        KeyPairs=[{"KeyPairId": "key-1", "KeyName": "packer_1", "Tags": worn}],
        states=[machine, {**machine, "State": {"Name": "shutting-down"}}, over],
    )


def test_machines_go_before_what_they_use_and_images_before_any_waiting() -> None:
    ec2, pauses = everything(), list[float]()
    ec2.answers["Images"] = [image("capa-ami-windows-2022", "pending")]
    ec2.refusals = {"delete_security_group": ["DependencyViolation", "DependencyViolation"]}
    going = found_in(ec2)
    assert [why for _, why in leftovers.remove(client(ec2), going, clock(pauses))] == [""] * len(going)
    assert ec2.told == [
        "deregister_image ami-capa-ami-windows-2022",
        "cancel_spot_instance_requests sir-1",
        "terminate_instances i-1",
        "delete_launch_template lt-1",
        "delete_volume vol-available",
        "delete_network_interface eni-available",
        "delete_security_group sg-1",
        "delete_key_pair key-1",
    ]
    # Two looks at the machine before its end, two attempts at the group before it was free.
    assert pauses == [1.0, 2.0, 1.0, 2.0]


def test_what_is_gone_is_removed_and_what_is_refused_is_told() -> None:
    ec2 = everything()
    ec2.refusals = {
        "terminate_instances": ["OperationNotPermitted"],
        "delete_volume": ["InvalidVolume.NotFound"],
        "delete_launch_template": ["InvalidLaunchTemplateId.NotFoundException"],
        "delete_security_group": ["DependencyViolation"] * 100,
    }
    going = found_in(ec2)
    told = dict(_told(leftovers.remove(client(ec2), going, clock([]))))
    assert {name: why for name, why in told.items() if why} == {
        "i-1": "OperationNotPermitted: no",
        "sg-1": "DependencyViolation: no",
    }


def test_a_key_pair_that_ec2_still_shows_is_not_called_removed() -> None:
    ec2, pauses = everything(), list[float]()
    # EC2 answers as if it had deleted it.
    ec2.refusals = {"delete_key_pair": ["nothing of this is said"]}
    [pair] = [each for each in found_in(ec2) if each.kind == leftovers.KEY_PAIR]
    [(_, why)] = leftovers.remove(client(ec2), [pair], clock(pauses))
    assert (why, sum(pauses)) == ("EC2 still shows it after 3 minutes", leftovers.RELEASE_LIMIT_S)


def _told(outcomes: Iterator[tuple[Any, str]]) -> Iterator[tuple[str, str]]:
    return ((leftover.id, why) for leftover, why in outcomes)


def test_with_another_accounts_credentials_nothing_is_looked_at_or_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    who = SimpleNamespace(get_caller_identity=lambda: {"Account": "222233334444"})
    clients = {("sts", "us-east-1"): who}
    opened = contextlib.nullcontext(lambda *asked: clients[asked])
    monkeypatch.setattr(provider, "service_clients", lambda *_, **_options: opened)
    place = provider.place(Settings(region="us-east-1"), RunFacts({}, {}, ""))
    assert place.account == "222233334444"
    other = place.model_copy(update={"account": "111122223333"})
    with pytest.raises(RefusedError, match="cannot read account 111122223333 in us-east-1"):
        provider.leftovers(other, RunFacts({}, {}, ""), None)
    with pytest.raises(RefusedError, match="cannot read account 111122223333 in us-east-1"):
        next(provider.remove(other, [], RunFacts({}, {}, "")))
