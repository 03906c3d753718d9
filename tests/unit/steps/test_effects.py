"""What a step says that its scripts do: in the plan, and refused where it cannot be tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import StepRoot
from imagegen.base.errors import ConfigError
from imagegen.plan import loading
from imagegen.steps.effects import Effect
from imagegen.steps.evaluate import evaluate_step
from imagegen.steps.model import Step, load_steps

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = {"paths": {"home": "C:\\home"}}
SCRIPT = "- script: {name: a.ps1, source: a.ps1}\n  effects: "


def make_step(tmp_path: Path, resources: str) -> Step:
    folder = tmp_path / "extra"
    for path, text in {
        "meta/step.yml": "summary: a step of the tests\nreads: []\ntimeout_s: 60\n",
        "files/a.ps1": "exit 0\n",
        "resources.yml": resources,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return load_steps([StepRoot(tmp_path, "steps")])["extra"]


def test_effects_have_the_kinds_of_resources(tmp_path: Path) -> None:
    entries = (
        "\n    - file: {path: '{{ paths.home }}\\{{ item }}'}\n      each: \"['a', 'b']\"\n      when: item == 'b'\n"
        "    - service: {name: agent, start: automatic}\n    - environment: {name: A, value: '1'}\n"
    )
    (draft,) = evaluate_step(make_step(tmp_path, SCRIPT + entries), CONTEXT, {}).drafts
    service = dict.fromkeys(("display_name", "command", "state", "depends_on", "recovery"))
    key = "HKLM:\\SYSTEM\\CurrentControlSet\\Control\\Session Manager\\Environment"
    assert draft.effects == (
        Effect("file", "file C:\\home\\b", {"path": "C:\\home\\b", "sha256": None}),
        Effect("service", "service agent", {"name": "agent", "start": "automatic", **service}),
        Effect("registry", "environment A", {"key": key, "name": "A", "type": "String", "data": "1"}),
    )


def test_script_may_say_why_it_has_none(tmp_path: Path) -> None:
    (draft,) = evaluate_step(make_step(tmp_path, f"{SCRIPT}{{none: it only prints}}\n"), CONTEXT, {}).drafts
    assert draft.effects == ()


@pytest.mark.parametrize(
    ("resources", "path", "message"),
    [
        (f"{SCRIPT}none\n", "[0].effects", "must be a list of resources, or none with the reason"),
        (f"{SCRIPT}{{none: }}\n", "[0].effects", "must be a list of resources, or none with the reason"),
        (
            f"{SCRIPT}[image: {{name: a}}]\n",
            "[0].effects[0]",
            "must be a map with one kind of resource, and its fields",
        ),
        (f"{SCRIPT}[service: {{name: a, begin: 1}}]\n", "[0].effects[0].service.begin", "unknown key"),
        (f"{SCRIPT}[file: {{path: '{{{{ paths.x }}}}'}}]\n", "[0].script", "'paths.x' is not defined"),
        (
            "- directory: {path: 'C:\\a'}\n  effects: [service: {name: a}]\n",
            "[0].effects",
            "only command, file, script, update can have effects: directory runs no script",
        ),
    ],
)
def test_invalid_effect_is_refused(tmp_path: Path, resources: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        evaluate_step(make_step(tmp_path, resources), CONTEXT, {})
    (problem,) = caught.value.problems
    assert (problem.path, message in problem.message) == (path, True), problem


def test_each_shipped_script_declares_its_effects() -> None:
    for step in loading.load_steps().values():
        for name in step.files:
            entries = [entry for entry in step.resources.data if f"'{name}'" in repr(entry)]
            assert not name.endswith(".ps1") or all("effects" in entry for entry in entries), name
        # Those of the config have another source.
        assert all("effects" in entry for entry in step.resources.data if "script" in entry), step.name
