"""The shipped steps: in their order, with nothing in their folders and metadata that nothing uses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from imagegen import contents
from imagegen.catalog.facts import facts_for, paths
from imagegen.config.load import load_config
from imagegen.errors import ConfigError
from imagegen.plan.context import evaluate_steps, versions_of
from imagegen.providers import PROVIDERS
from imagegen.resources.kinds import KINDS
from imagegen.steps.discover import load_steps, override_names
from imagegen.steps.evaluate import evaluate_step
from imagegen.steps.model import PHASES

REPOSITORY = Path(__file__).parents[3]
STEPS = load_steps(contents.ROLES)
CONFIG, _ = load_config(
    REPOSITORY / "configs/windows-2022-containerd.yaml", overrides=lambda: sorted(override_names(STEPS))
)
EVALUATED = {target: evaluate_steps(CONFIG, target, STEPS) for target in PROVIDERS}


def test_order() -> None:
    for evaluated in EVALUATED.values():
        assert [item.step.name for item in evaluated] == ["system", "containerd", "kubernetes", "cloudbase-init"]


def test_order_is_by_phase_and_by_what_a_step_comes_after() -> None:
    names = [item.step.name for item in EVALUATED["aws"]]
    for item in EVALUATED["aws"]:
        assert all(names.index(before) < names.index(item.step.name) for before in item.step.meta.after)
    phases = [PHASES.index(item.step.meta.phase) for item in EVALUATED["aws"]]
    assert phases == sorted(phases)


def test_overrides_are_the_names_that_operators_know() -> None:
    assert override_names(STEPS) == {
        "cloudbase_init_url": ["cloudbase-init"],
        "containerd_url": ["containerd"],
        "kubernetes_base_url": ["kubelet", "kubeadm", "kubectl", "kube-log-runner"],
        "crictl_url": ["crictl"],
    }


@pytest.mark.parametrize(("name", "read"), [(name, read) for name, step in STEPS.items() for read in step.meta.reads])
def test_step_needs_what_it_reads(name: str, read: str) -> None:
    step = STEPS[name]
    fewer = [item for item in step.meta.reads if item != read]
    blind = dataclasses.replace(step, meta=step.meta.model_copy(update={"reads": fewer}))
    context: dict[str, Any] = CONFIG.model_dump(mode="json", exclude={"targets", "overrides"})
    context |= {"target": "aws", "paths": paths(), "facts": facts_for(versions_of(CONFIG), "aws")}
    evaluate_step(step, context, {})
    with pytest.raises(ConfigError, match="cannot be used"):
        evaluate_step(blind, context, {})


@pytest.mark.parametrize("name", STEPS)
def test_everything_in_a_steps_folder_is_used(name: str) -> None:
    drafts = [
        draft
        for evaluated in EVALUATED.values()
        for item in evaluated
        if item.step.name == name
        for draft in item.drafts
    ]
    bundled = {f"files/{name}/{path.removesuffix('.j2')}" for path in (*STEPS[name].templates, *STEPS[name].files)}
    assert {draft.fields["source"] for draft in drafts if draft.fields.get("source")} == bundled
    assert {draft.fields["artifact"] for draft in drafts if draft.fields.get("artifact")} == set(
        STEPS[name].meta.artifacts
    )


def test_every_kind_of_resource_is_used() -> None:
    assert {draft.kind for evaluated in EVALUATED.values() for item in evaluated for draft in item.drafts} == set(KINDS)


@pytest.mark.parametrize("name", STEPS)
def test_downloads_are_from_https_and_name_their_version(name: str) -> None:
    for item in EVALUATED["aws"]:
        if item.step.name == name:
            for request in item.requests.values():
                assert request.url.startswith("https://")
                assert any(version in request.url for version in ("1.36.2", "2.3.4", "1.1.8", "1.36.0")), request.url
