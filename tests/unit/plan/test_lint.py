"""Mistakes in resources that `imagegen validate` finds: one value of a shipped step is changed at a time."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.plan.lint import CHECKS, Resources, find_mistakes

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.plan.loading import Loaded
    from imagegen.steps.evaluate import Draft, EvaluatedStep

    Evaluated = Callable[[str], tuple[EvaluatedStep, ...]]

ROOT = Path(__file__).parents[3]
CONFIGS = ("configs/windows-2022-containerd.yaml", "configs/docker.yaml", "tests/bench/maximal.yaml")
# The config, a resource of its plan, its field (or the text of its file), what is written instead of which text, and
# what is said then.
CASES: list[dict[str, str]] = json.loads((ROOT / "tests/data/planted-mistakes.json").read_text())


def test_every_check_has_a_case(evaluated: Evaluated) -> None:
    seen = set()
    for case in CASES:
        planted = Resources(_planted(evaluated(case["config"]), case), "aws")
        seen |= {check for check in CHECKS if any(check(planted))}
    assert [check.__name__ for check in CHECKS if check not in seen] == []


def _label(draft: Draft) -> str:
    if draft.kind == "registry":
        return f"registry:{draft.fields['key'].split('Services')[-1]}\\{draft.fields['name']}"
    names = ("name", "path", "process", "artifact", "entry")
    return f"{draft.kind}:{next((str(draft.fields[name]) for name in names if draft.fields.get(name)), '')}"


def _changed(value: Any, case: dict[str, str]) -> Any:  # noqa: ANN401 - a field of any type
    if isinstance(value, dict):
        return {key: _changed(item, case) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, case) for item in value]
    return str(value).replace(case["old"], case["new"])


def _planted(steps: tuple[EvaluatedStep, ...], case: dict[str, str]) -> list[EvaluatedStep]:
    """The steps with the mistake of a case."""

    ((step, draft),) = ((step, draft) for step in steps for draft in step.drafts if _label(draft) == case["resource"])
    if "field" not in case:
        source = str(draft.fields["source"])
        text = step.texts[source].decode()
        assert case["old"] in text
        planted = dataclasses.replace(
            step, texts={**step.texts, source: text.replace(case["old"], case["new"]).encode()}
        )
    else:
        value = draft.fields[case["field"]]
        assert case["old"] in str(value)
        changed = dataclasses.replace(draft, fields={**draft.fields, case["field"]: _changed(value, case)})
        planted = dataclasses.replace(step, drafts=tuple(changed if one is draft else one for one in step.drafts))
    return [planted if one is step else one for one in steps]


@pytest.fixture(scope="module")
def evaluated() -> Evaluated:
    from tests.conftest import load_today

    @functools.cache
    def load(config: str) -> tuple[EvaluatedStep, ...]:
        loaded: Loaded = load_today(ROOT / config)
        return loaded.evaluated["aws"]

    return load


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["resource"])
def test_planted_mistake_is_found(case: dict[str, str], evaluated: Evaluated) -> None:
    found = [problem.message for problem in find_mistakes(_planted(evaluated(case["config"]), case), "aws")]
    assert [text for text in found if case["message"] in text], found


@pytest.mark.parametrize("config", CONFIGS)
def test_shipped_steps_have_no_mistake(config: str, evaluated: Evaluated) -> None:
    assert list(find_mistakes(evaluated(config), "aws")) == []
