"""What a decision holds, and what a lock has no entry for. Faults are cases of tests/errors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base import contents
from imagegen.base.canonical import canonical
from imagegen.fetch.lock import Lock
from imagegen.plan.resolve import find_missing, resolve
from imagegen.providers.provider import provider
from imagegen.steps.release_record import SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[3]
SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
MAXIMAL = REPOSITORY / "tests/golden/maximal.yaml"
ARTIFACTS = ["containerd", "kubelet", "kubeadm", "kubectl", "kube-log-runner", "crictl", "cloudbase-init"]


@pytest.fixture
def decided(decide: Callable[..., Any]) -> Any:  # noqa: ANN401 - conftest's Decided
    return decide(SHIPPED, "aws")


def test_phases(decided: Any) -> None:  # noqa: ANN401 - as above
    phases = decided.decision.plan.image.phases
    assert [(phase.name, phase.restart) for phase in phases] == [("phase-1", True), ("phase-2", False)]
    assert [[step.name for step in phase.steps] for phase in phases] == [
        ["system"],
        ["containerd", "kubernetes", "cloudbase-init", "release-record"],
    ]
    build = decided.decision.plan.build
    assert build.phase_timeouts_s == {
        phase.name: sum(build.steps[step.name].timeout_s for step in phase.steps) + 600 for phase in phases
    }


def test_the_scripts_of_the_operator_add_their_time_to_their_step(decide: Callable[..., Any]) -> None:
    plan = decide(REPOSITORY / "tests/golden/maximal.yaml", "aws").decision.plan
    # 60 for the step itself, the default of one script and 900 of the other.
    assert plan.build.steps["scripts"].timeout_s == 60 + 600 + 900


def test_what_may_restart_is_last_before_a_restart(decided: Any) -> None:  # noqa: ANN401 - as above
    first, second = decided.decision.plan.image.phases
    assert [resource.kind for resource in first.resources()].index("feature") == len(list(first.resources())) - 1
    assert "feature" not in [resource.kind for resource in second.resources()]


def test_files_and_scripts_are_digests_of_the_bytes_beside(decided: Any) -> None:  # noqa: ANN401 - as above
    decision = decided.decision
    for digests, data in (
        # The release record has the identity of the image, which these digests decide.
        (
            {**decision.plan.image.files, SOURCE: decision.plan.release_record},
            decision.bundle,
        ),
        (decision.plan.image.scripts, decision.scripts),
    ):
        assert digests == {path: hashlib.sha256(content).hexdigest() for path, content in data.items()}
        assert [path for path in digests if path != SOURCE] == sorted({*digests} - {SOURCE})
    assert set(decision.scripts) == {"start.ps1", "aws/bootstrap.ps1", "aws/generalise.ps1"}


def test_a_bundle_holds_the_engine_and_the_kinds_of_its_plan(decided: Any) -> None:  # noqa: ANN401 - as above
    guest = contents.read_folder(contents.PACKER / "guest")
    guest["kinds/new.ps1"] = b"@{}"
    fewer = tuple(step for step in decided.target.steps if step.step.name == "system")
    bundle = resolve(decided.loaded.specs["aws"], decided.lock, fewer, guest, {}, {}).bundle
    assert {path for path in bundle if path.startswith("kinds/")} == {
        f"kinds/{kind}.ps1" for kind in ("acl", "command", "directory", "feature", "registry", "service")
    }
    assert {path for path in guest if "/" not in path} == {path for path in bundle if "/" not in path}


def test_archives_list_what_they_leave_behind(decided: Any) -> None:  # noqa: ANN401 - as above
    members = {
        resource.fields["artifact"]: resource.fields
        for phase in decided.decision.plan.image.phases
        for resource in phase.resources()
        if resource.kind == "archive"
    }
    locked = decided.lock.artifacts["containerd"]
    # Every file of the archive, not only those that the step expects.
    assert members["containerd"]["members"] == [
        {"path": name, "sha256": locked.members[f"bin/{name}"], "size": locked.sizes[f"bin/{name}"]}
        for name in ("containerd-shim-runhcs-v1.exe", "containerd-stress.exe", "containerd.exe", "ctr.exe")
    ]
    assert members["containerd"]["strip"] == 1


def test_versions_and_base_are_told(decided: Any) -> None:  # noqa: ANN401 - as above
    image = decided.decision.plan.image
    assert image.versions == {"kubernetes": "1.36.4", "containerd": "2.3.4", "cloudbase_init": "1.1.8"}
    assert image.windows == {"release": "2022", "edition": "core", "build": 20348}
    assert image.base == decided.lock.base_images["aws"].identity


def test_plan_as_json_is_json_and_whole(decided: Any) -> None:  # noqa: ANN401 - as above
    said = decided.decision.plan.as_json()
    assert sorted(said) == ["build", "image", "image_id", "publish"]
    assert json.loads(canonical(said))["image_id"] == decided.decision.plan.image_id
    assert decided.decision.plan.image_id.startswith(decided.decision.plan.short_id)


def test_a_whole_lock_answers(decided: Any) -> None:  # noqa: ANN401 - as above
    assert _missing(decided, decided.lock) == []


def test_no_lock_answers_nothing(decided: Any) -> None:  # noqa: ANN401 - as above
    assert _missing(decided, None) == ["the base image for aws", *ARTIFACTS]
    assert _missing(decided, Lock()) == ["the base image for aws", *ARTIFACTS]


@pytest.mark.parametrize("name", ARTIFACTS)
def test_another_address_is_not_answered(decided: Any, name: str) -> None:  # noqa: ANN401 - as above
    artifacts = dict(decided.lock.artifacts)
    artifacts[name] = artifacts[name].model_copy(update={"url": "https://elsewhere.example.com/x"})
    assert _missing(decided, decided.lock.model_copy(update={"artifacts": artifacts})) == [name]


@pytest.mark.parametrize("lacks", [("members", "sizes"), ("members",), ("sizes",)])
def test_an_archive_without_its_files_or_their_sizes_is_not_answered(
    decided: Any,  # noqa: ANN401 - as above
    lacks: tuple[str, ...],
) -> None:
    unread = decided.lock.artifacts["containerd"].model_copy(update=dict.fromkeys(lacks))
    artifacts = {**decided.lock.artifacts, "containerd": unread}
    assert _missing(decided, decided.lock.model_copy(update={"artifacts": artifacts})) == ["containerd"]


@pytest.mark.parametrize("key", ["region", "name", "owner"])
def test_another_base_image_is_not_answered(decided: Any, key: str) -> None:  # noqa: ANN401 - as above
    base = decided.lock.base_images["aws"]
    other = base.model_copy(update={"request": {**base.request, key: "another"}})
    lock = decided.lock.model_copy(update={"base_images": {"aws": other}})
    assert _missing(decided, lock) == ["the base image for aws"]


def test_fixed_version_of_a_gallery_is_given_to_packer(decide: Callable[..., Any]) -> None:
    for file, version in ((SHIPPED, ""), (MAXIMAL, "1.34.9")):
        tree = pipeline.render_tree(decide(file, "azure").decision)
        assert json.loads(tree["image.auto.pkrvars.json"])["azure"]["version"] == version


def _missing(decided: Any, lock: Lock | None) -> list[str]:  # noqa: ANN401 - as above
    return find_missing(decided.target.spec, lock, decided.target.steps, provider("aws"))
