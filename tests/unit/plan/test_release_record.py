"""The release record: what it says, and that it is no part of the identity that it has."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.plan.release_record import with_release_record
from imagegen.render import guest_plan
from imagegen.steps.release_record import RESOURCE, SOURCE, UNDECIDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.plan.resolve import Decision

SHIPPED = Path(__file__).parents[3] / "configs" / "windows-2022-containerd.yaml"


@pytest.fixture
def decision(decide: Callable[..., Any]) -> Decision:
    found: Decision = decide(SHIPPED, "aws").decision
    return found


def test_it_has_the_identity_and_is_no_part_of_it(decision: Decision) -> None:
    plan = decision.plan
    assert json.loads(decision.bundle[SOURCE])["image_id"] == plan.image_id
    after = dataclasses.replace(plan, release_record="")
    assert (after.image_id, after.as_json()) == (plan.image_id, plan.as_json())


def test_the_machine_verifies_its_bytes(decision: Decision) -> None:
    digest = hashlib.sha256(decision.bundle[SOURCE]).hexdigest()
    guest = json.loads(guest_plan(decision.plan))
    resources = [one for phase in guest["phases"] for step in phase["steps"] for one in step["resources"]]
    [record] = [one for one in resources if one["id"] == RESOURCE]
    assert (record["fields"]["sha256"], guest["files"][SOURCE]) == (digest, digest)
    assert UNDECIDED not in guest_plan(decision.plan).decode()


def test_it_says_what_each_artifact_brings(decision: Decision) -> None:
    plan, record = decision.plan, json.loads(decision.bundle[SOURCE])
    assert {name: (one["sha256"], one["size"]) for name, one in record["artifacts"].items()} == {
        name: (one.sha256, one.size) for name, one in plan.image.artifacts.items()
    }
    artifacts = record["artifacts"]
    assert artifacts["kubelet"]["files"] == {r"C:\k\kubelet.exe": artifacts["kubelet"]["sha256"]}
    assert artifacts["containerd"]["files"][r"C:\Program Files\containerd\containerd.exe"]
    assert artifacts["cloudbase-init"]["product"]["version"] == record["versions"]["cloudbase_init"]
    assert [name for name, one in artifacts.items() if not one["files"] and not one["product"]] == []


def test_it_holds_no_secret_of_a_url(decision: Decision) -> None:
    plan = decision.plan
    url = "https://me:hidden@mirror.example.com/kubelet.exe?sig=hidden"
    build = dataclasses.replace(plan.build, downloads={**plan.build.downloads, "kubelet": url})
    changed = dataclasses.replace(decision, plan=dataclasses.replace(plan, build=build))
    record = json.loads(with_release_record(changed).bundle[SOURCE])
    assert record["artifacts"]["kubelet"]["url"] == "https://mirror.example.com/kubelet.exe"
