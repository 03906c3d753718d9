"""In what two images differ: plans with plans, manifests with manifests, and one with the other."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import ConfigError
from imagegen.record.diff import Differences, Side, compare, difference_lines, read_manifest, read_plan
from tests.unit.record.test_manifest_store import manifest

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGS = Path(__file__).parents[3] / "configs"
SHA = ("a" * 64, "b" * 64)
PLAN: dict[str, Any] = {
    "image_id": "1" * 64,
    "image": {
        "base": {"name": "Base-2026.11.11"},
        "versions": {"containerd": "2.3.4"},
        "windows": {"release": "2022"},
        "phases": [
            {
                "steps": [
                    {
                        "name": "kubernetes",
                        "resources": [
                            {
                                "id": "kubernetes/service:kubelet",
                                "kind": "service",
                                "fields": {
                                    "name": "kubelet",
                                    "start": "automatic",
                                    "recovery": {"restart_after_s": 10},
                                },
                            },
                            {
                                "id": "kubernetes/archive:tools",
                                "kind": "archive",
                                "fields": {"members": [{"path": "bin\\a.exe", "sha256": SHA[0]}]},
                            },
                        ],
                    }
                ]
            }
        ],
        "artifacts": {"tools": {"sha256": SHA[0], "size": 3}},
    },
    "build": {"name": "image", "target": "prod", "downloads": {"tools": "https://a.example.com/tools.zip?secret=x"}},
}


def changed(change: Callable[[dict[str, Any]], object]) -> Side:
    """The plan of another image."""
    other = copy.deepcopy(PLAN)
    other["image_id"] = "2" * 64
    change(other)
    return read_plan(other, "other.json")


def resources(plan: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = plan["image"]["phases"][0]["steps"][0]["resources"]
    return found


def lines(found: Differences) -> list[str]:
    return [line for line in difference_lines(found) if line.startswith("* ")]


BEFORE = read_plan(PLAN, "plan.json")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan["image"]["versions"].update(containerd="2.4.0"), "* **containerd**: 2.3.4 → 2.4.0"),
        (lambda plan: plan["image"]["versions"].update(docker="29"), "* **docker** added: 29"),
        (lambda plan: plan["image"]["windows"].update(release="2025"), "* **windows release**: 2022 → 2025"),
        (lambda plan: plan["image"]["base"].clear(), "* **name** removed"),
        (
            lambda plan: plan["image"]["artifacts"]["tools"].update(sha256=SHA[1]),
            f"* **tools**: https://a.example.com/tools.zip (sha256 {SHA[0]}) → "
            f"https://a.example.com/tools.zip (sha256 {SHA[1]})",
        ),
        (
            lambda plan: resources(plan)[0]["fields"].update(start="manual", state="running"),
            "* changed service `kubelet`: start `automatic` → `manual`; state `running` added",
        ),
        (
            lambda plan: resources(plan)[0]["fields"]["recovery"].update(restart_after_s=60),
            "* changed service `kubelet`: recovery.restart_after_s `10` → `60`",
        ),
        (
            lambda plan: resources(plan)[1]["fields"]["members"][0].update(sha256=SHA[1]),
            "* changed archive `tools`: members[bin\\a.exe] has other content",
        ),
        (lambda plan: resources(plan).pop(0), "* removed service `kubelet`"),
        (
            lambda plan: resources(plan).append({"id": "kubernetes/path:C:\\k", "kind": "path", "fields": {}}),
            "* added path `C:\\k`",
        ),
    ],
)
def test_a_change_is_one_line(change: Callable[[dict[str, Any]], object], said: str) -> None:
    assert lines(compare(BEFORE, changed(change))) == [said]


def test_many_changed_values_are_counted() -> None:
    def change(plan: dict[str, Any]) -> None:
        resources(plan)[0]["fields"].update({f"x{number}": number for number in range(8)})

    (line,) = lines(compare(BEFORE, changed(change)))
    assert line.endswith("x4 `4` added and 3 more")


def test_the_same_image_is_said_in_one_line() -> None:
    found = compare(BEFORE, BEFORE)
    assert found.same
    assert list(difference_lines(found))[2] == f"Both have the same image id, `{'1' * 64}`: it is the same image."
    assert found.as_json()["same"] is True


def test_only_the_scripts_can_differ() -> None:
    assert list(difference_lines(compare(BEFORE, changed(lambda _: None))))[-1] == (
        "Only scripts or files of imagegen itself differ."
    )


def reported(*identifiers: str, **facts: object) -> Side:
    entries = [{"id": one, "step": one.partition("/")[0], "kind": "service", "facts": facts} for one in identifiers]
    return read_manifest(manifest(report={"resources": entries}, report_missing=None, image_id="3" * 64))


def test_manifests_differ_in_what_the_machine_reported() -> None:
    before = reported("kubernetes/service:kubelet", start="automatic")
    after = reported("kubernetes/service:kubelet", start="manual")
    assert lines(compare(before, after)) == []  # the same image id
    found = compare(before, after)
    assert [(one.change, one.values[0].after) for one in found.resources] == [("changed", "manual")]


def test_a_plan_and_a_manifest_differ_in_which_resources_they_have() -> None:
    found = compare(BEFORE, reported("kubernetes/service:kubelet", start="manual"))
    assert [(one.change, one.label) for one in found.resources] == [("removed", "tools")]
    assert list(difference_lines(found))[-1].startswith("A manifest has no planned values")
    # The versions that only one of the two forms has are no difference.
    assert {change.name for change in found.versions} <= {"containerd"}


@pytest.mark.parametrize("data", [[], {}, {"image_id": "1"}, {**PLAN, "build": {"name": "x"}}, "text"])
def test_other_json_is_refused(data: object) -> None:
    with pytest.raises(ConfigError, match="is neither a plan nor a manifest"):
        read_plan(data, "other.json")


def test_shipped_configs_differ_as_people_would_say_it(decide: Callable[..., Any]) -> None:
    plans = [decide(CONFIGS / f"windows-{release}-containerd.yaml", "aws").decision.plan for release in (2022, 2025)]
    before, after = (read_plan(json.loads(json.dumps(plan.as_json())), "plan.json") for plan in plans)
    text = "\n".join(difference_lines(compare(before, after)))
    assert "* **windows release**: 2022 → 2025" in text
    assert "### system" in text
    assert "* **containerd**" not in text


def test_command_reads_configs_plans_and_manifests(run: Callable[..., Any], tmp_path: Path) -> None:
    plan, other = tmp_path / "plan.json", tmp_path / "manifest.json"
    plan.write_text(json.dumps(PLAN))
    other.write_text(manifest(report={"resources": []}, report_missing=None).model_dump_json())
    code, out, _ = run("plan", "diff", plan, other)
    assert code == 0
    assert out.startswith("# image for prod → node for aws\n")
    code, out, _ = run("plan", "diff", plan, plan, "--format", "json")
    assert (code, json.loads(out)["same"]) == (0, True)
    code, out, _ = run("plan", "diff", "--help")
    assert (code, "Usage: imagegen plan diff [OPTIONS] A B" in out) == (0, True)
    code, out, _ = run("plan", "--help")
    assert "imagegen plan diff A B" in out
