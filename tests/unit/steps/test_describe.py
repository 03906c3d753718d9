"""What `imagegen steps NAME` and `imagegen kinds NAME` show of every step and kind."""

import re

import pytest

from imagegen.config.fields import keys
from imagegen.config.yaml import parse_yaml
from imagegen.plan import loading
from imagegen.steps.describe import describe_kind, describe_step, kind_lines, step_lines
from imagegen.steps.kinds import KINDS

STEPS = loading.load_steps()
_WIDTH = 80
# Addresses, conditions and labels are not wrapped, so that they can be copied.
_COPIED = re.compile(r" {2,}(https://|[a-z]+ +\S)|    ")


@pytest.mark.parametrize("name", STEPS)
def test_step_is_described_in_full(name: str) -> None:
    step = STEPS[name]
    described = describe_step(step)
    lines = list(step_lines(described, _WIDTH))
    text = "\n".join(lines)
    assert lines[0].startswith(f"{name}: ")
    # Every value that it reads stands for at least one key, or is a fact.
    shown = {option.path for option in described.options} | {f"facts.{fact.path}" for fact in described.facts}
    config_keys = {key.path for key in keys()}
    # Of a fact with parts, the whole is described.
    for path in [re.sub(r"^(facts\.[^.]+)\..*", r"\1", read) for read in step.meta.reads]:
        if path.startswith("facts.") or path in config_keys or any(key.startswith(path) for key in config_keys):
            assert any(one == path or one.startswith((f"{path}.", f"{path}[")) for one in shown), path
    assert all(option.description for option in (*described.options, *described.facts))
    assert [artifact.name for artifact in described.artifacts] == [*step.meta.artifacts]
    assert len(described.changes) == len(step.resources.data)
    assert all(f"  {change.kind:<11} {change.label}" in text for change in described.changes)
    assert [line for line in lines if len(line) > _WIDTH and not _COPIED.match(line)] == []


def test_step_says_why_it_changes_the_machine() -> None:
    described = describe_step(STEPS["system"])
    (pipe,) = [change for change in described.changes if change.label.endswith("ServicesPipeTimeout")]
    assert pipe.reason.startswith("kubelet's service answers the service manager only after")
    assert described.changes[1].reason == ""
    (zone,) = [change for change in described.changes if change.label == "time-zone"]
    assert (zone.when, zone.each) == ("windows.time_zone", None)


def test_what_a_node_may_change_is_said_of_its_resource_and_of_its_kind() -> None:
    said = "until: first-boot. A node may change it afterwards: -Check passes over it there"
    steps = {name: list(step_lines(describe_step(STEPS[name]), 200)) for name in ("cloudbase-init", "scripts")}
    after = {
        name: [lines[at - 1].split()[0] for at, line in enumerate(lines) if line.strip() == said]
        for name, lines in steps.items()
    }
    assert after == {"cloudbase-init": ["service"], "scripts": ["for"]}
    kinds = {name: list(kind_lines(describe_kind(name, STEPS), 200)) for name in ("service", "script")}
    assert {name: f"  Always {said}" in lines for name, lines in kinds.items()} == {"service": False, "script": True}


def test_step_has_the_paths_of_the_machine() -> None:
    labels = [change.label for change in describe_step(STEPS["containerd"]).changes]
    assert r"C:\Program Files\containerd\config.toml" in labels
    assert not any("{{ paths." in label for label in labels)


@pytest.mark.parametrize("name", KINDS)
def test_kind_is_described_in_full(name: str) -> None:
    described = describe_kind(name, STEPS)
    names = [field.name for field in described.fields]
    assert [one for one in names if "." not in one] == [*KINDS[name].model_fields]
    assert all(field.type for field in described.fields)
    assert [line for line in kind_lines(described, _WIDTH) if len(line) > _WIDTH and not _COPIED.match(line)] == []
    # The example is YAML of this kind.
    if described.used_by:
        (entry,) = parse_yaml(described.example.encode(), name).data
        assert name in entry


@pytest.mark.parametrize(
    ("kind", "field", "type_", "default"),
    [
        ("service", "start", "automatic, delayed, manual or disabled", None),
        ("service", "depends_on", "list (name) or null", "null"),
        ("service", "recovery.reset_after_s", "seconds", None),
        ("archive", "members[].sha256", "sha256", None),
        ("archive", "strip", "number, 0 to 8", "0"),
        ("task", "every_s", "number, 60 to 86400 or null", "null"),
        ("command", "unless.matches", "list (regular expression)", None),
        ("registry", "data", "string, number or list (string)", None),
        ("script", "good_exit_codes", "list (number)", "[0]"),
    ],
)
def test_field_has_its_type_in_words(kind: str, field: str, type_: str, default: str | None) -> None:
    found = {one.name: one for one in describe_kind(kind, STEPS).fields}[field]
    assert (found.type, found.default) == (type_, default)


def test_field_has_the_text_of_its_model() -> None:
    found = {one.name: one.description for one in describe_kind("task", STEPS).fields}
    assert found["every_s"] == "Windows accepts no shorter time than a minute. None: at each start of Windows."
    assert found["name"] == ""
