"""The bundle: one zip, the same bytes for the same plan, and nothing in it that the plan does not pin."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.canonical import canonical
from imagegen.render import PLAN_VERSION, bundle_zip, guest_plan
from imagegen.steps.kinds import ENGINE_MODULE, KINDS, PLANNED_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[3]
SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
MAXIMAL = REPOSITORY / "tests" / "golden" / "maximal.yaml"
# The kind as a step has it, and as the plan has it.
RENAMED = {("environment", "registry"), ("extract", "file")}
CASES = [(SHIPPED, "aws"), (SHIPPED, "azure"), (MAXIMAL, "aws")]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].stem}-{case[1]}")
def decision(request: pytest.FixtureRequest, decide: Callable[..., Any]) -> Any:  # noqa: ANN401 - plan.resolve.Decision
    return decide(*request.param).decision


def _zip(tree: dict[str, bytes]) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(tree["guest/bundle.zip"]))


def test_tree_is_byte_identical_twice(decision: Any) -> None:  # noqa: ANN401 - as above
    first, second = pipeline.render_tree(decision), pipeline.render_tree(decision)
    assert first == second
    assert list(first) == sorted(first)


def test_zip_holds_nothing_of_where_and_when_it_was_made(decision: Any) -> None:  # noqa: ANN401 - as above
    with _zip(pipeline.render_tree(decision)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(entry.filename for entry in entries)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {(entry.create_system, entry.external_attr, entry.extra, entry.comment) for entry in entries} == {
        (3, 0o644 << 16, b"", b"")
    }


def test_order_of_files_is_no_part_of_the_zip() -> None:
    files = {"b": b"2", "a": b"1", "kinds/c": b"3"}
    assert bundle_zip(b"{}", files) == bundle_zip(b"{}", dict(reversed(files.items())))
    assert bundle_zip(b"{}", files) != bundle_zip(b"{}", {**files, "a": b"2"})


def test_plan_lists_every_other_member_with_its_digest(decision: Any) -> None:  # noqa: ANN401 - as above
    with _zip(pipeline.render_tree(decision)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    plan = json.loads(members["plan.json"])
    others = {name: hashlib.sha256(data).hexdigest() for name, data in members.items() if name != "plan.json"}
    assert plan["files"] == others
    assert members["plan.json"] == canonical(plan) == guest_plan(decision.plan)
    used = {resource["kind"] for phase in plan["phases"] for step in phase["steps"] for resource in step["resources"]}
    assert {name for name in others if name.startswith("kinds/")} == {f"kinds/{kind}.ps1" for kind in used}
    assert set(others) >= {"engine.psm1", "common.psm1", "download.psm1"}
    assert "start.ps1" not in others


def test_plan_says_all_that_the_contract_names(decision: Any) -> None:  # noqa: ANN401 - as above
    plan = json.loads(guest_plan(decision.plan))
    keys = ["artifacts", "files", "name", "phases", "plan_version", "proxy", "signatures", "target", "windows"]
    assert sorted(plan) == keys
    assert plan["plan_version"] == PLAN_VERSION == 1
    assert sorted(plan["windows"]) == ["build", "release"]
    assert {frozenset(item) for item in plan["artifacts"].values()} == {frozenset({"url", "sha256", "size"})}
    resources = [
        (step["name"], resource)
        for phase in plan["phases"]
        for step in phase["steps"]
        for resource in step["resources"]
    ]
    for step, resource in resources:
        assert sorted(resource) == ["effects", "fields", "id", "kind", "until"]
        named = resource["id"].removeprefix(f"{step}/").partition(":")[0]
        assert named == resource["kind"] or (named, resource["kind"]) in RENAMED
        assert sorted(resource["fields"]) == sorted(KINDS[resource["kind"]].model_fields)
    ids = [resource["id"] for _, resource in resources]
    assert len(ids) == len(set(ids)) > 40


def test_every_kind_is_used_by_one_of_the_configs(decide: Callable[..., Any]) -> None:
    phases = [phase for case in CASES for phase in decide(*case).decision.plan.image.phases]
    assert {resource.kind for phase in phases for resource in phase.resources()} == PLANNED_KINDS


def test_plan_names_only_artifacts_and_files_that_it_lists(decision: Any) -> None:  # noqa: ANN401 - as above
    plan = json.loads(guest_plan(decision.plan))
    fields = [
        resource["fields"] for phase in plan["phases"] for step in phase["steps"] for resource in step["resources"]
    ]
    assert {item["artifact"] for item in fields if item.get("artifact")} == set(plan["artifacts"])
    sources = {item["source"]: item["sha256"] for item in fields if item.get("source")}
    ours = {path for path in plan["files"] if path.startswith("files/") or path == ENGINE_MODULE}
    assert sources == {path: plan["files"][path] for path in ours}


def test_digests_on_the_command_line_are_of_what_is_uploaded(decision: Any) -> None:  # noqa: ANN401 - as above
    tree = pipeline.render_tree(decision)
    phases = json.loads(tree["image.auto.pkrvars.json"])["guest"]["phases"]
    with _zip(tree) as archive:
        plan_sha256 = hashlib.sha256(archive.read("plan.json")).hexdigest()
    bundle_sha256 = hashlib.sha256(tree["guest/bundle.zip"]).hexdigest()
    assert list(phases) == [phase.name for phase in decision.plan.image.phases]
    for name, phase in phases.items():
        words = phase["command"].split(" ")
        said = dict(zip(words[words.index("-Phase") :: 2], words[words.index("-Phase") + 1 :: 2], strict=True))
        assert (said["-Phase"], said["-BundleSha256"], said["-PlanSha256"]) == (name, bundle_sha256, plan_sha256)
        assert re.fullmatch(r"[1-9][0-9]*s", phase["timeout"])
