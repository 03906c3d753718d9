"""Goldens hold no digest of a known file, and a wrong digest shows all the same; a difference tells the whole tree."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagegen import pipeline
from imagegen.base import contents
from imagegen.base.canonical import canonical
from imagegen.render import bundle_zip
from tests.conftest import REPOSITORY
from tests.golden.readable import describe_difference, read_tree
from tests.golden.test_golden import BASE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Decided

PLAN = "guest/bundle/plan.json"
STATIC = "guest/static-files.txt"
VALUES = "image.auto.pkrvars.json"
KIND = "kinds/file.ps1"


@pytest.mark.parametrize("target", ["aws", "azure"])
def test_changed_scripts_change_no_golden(target: str, decide: Callable[..., Decided], tmp_path: Path) -> None:
    before = decide(BASE, target)
    agreed = read_tree(before, pipeline.render_tree(before.decision), REPOSITORY)
    shutil.copytree(contents.PACKER, tmp_path / "packer")
    shutil.copytree(contents.ROLES, tmp_path / "ansible-win" / "roles")
    roles = contents.StepRoot(tmp_path / "ansible-win" / "roles", "ansible-win/roles")
    content = contents.Contents(tmp_path / "packer", (roles,))
    scripts = [path for path in tmp_path.rglob("*") if path.suffix in (".ps1", ".psm1", ".cmd")]
    assert len(scripts) > 20
    for path in scripts:
        path.write_bytes(path.read_bytes() + b"\n")
    after = decide(BASE, target, content)
    assert read_tree(after, pipeline.render_tree(after.decision), tmp_path) == agreed
    assert after.decision.plan.image_id != before.decision.plan.image_id


@pytest.fixture
def decided(decide: Callable[..., Decided]) -> Decided:
    return decide(BASE, "aws")


def _with_bundle(
    tree: dict[str, bytes], change: Callable[[dict[str, Any], dict[str, bytes]], object]
) -> dict[str, bytes]:
    """The tree with its plan and its bundled files changed."""
    with zipfile.ZipFile(io.BytesIO(tree["guest/bundle.zip"])) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    plan = json.loads(members.pop("plan.json"))
    change(plan, members)
    return {**tree, "guest/bundle.zip": bundle_zip(canonical(plan), members)}


def _swap(digests: dict[str, str], one: str, other: str) -> None:
    digests[one], digests[other] = digests[other], digests[one]


WRONG: dict[str, tuple[Callable[[dict[str, Any], dict[str, bytes]], object], str, str]] = {
    "digest of nothing": (
        lambda plan, _: plan["files"].update({KIND: "0" * 64}),
        PLAN,
        f'+    "{KIND}": "{"0" * 64}",',
    ),
    "digest of another file": (
        lambda plan, _: _swap(plan["files"], KIND, "common.psm1"),
        PLAN,
        f'+    "{KIND}": "<sha256 of packer/guest/common.psm1>",',
    ),
    "digest of another artifact": (
        lambda plan, _: plan["artifacts"]["kubelet"].update(sha256=plan["artifacts"]["kubeadm"]["sha256"]),
        PLAN,
        '+      "sha256": "<sha256 of the artifact kubeadm>",',
    ),
    "size of another artifact": (
        lambda plan, _: plan["artifacts"]["containerd"].update(size=1),
        PLAN,
        '+      "size": 1,',
    ),
    "script with other bytes": (
        lambda _, files: files.update({KIND: files[KIND] + b"\n"}),
        STATIC,
        f"-guest/bundle/{KIND}: packer/guest/{KIND}",
    ),
    "script that is another": (
        lambda _, files: files.update({KIND: files["common.psm1"]}),
        STATIC,
        f"+guest/bundle/{KIND}: packer/guest/common.psm1",
    ),
}


@pytest.mark.parametrize(("change", "path", "line"), WRONG.values(), ids=WRONG)
def test_a_wrong_bundle_shows(
    change: Callable[[dict[str, Any], dict[str, bytes]], object], path: str, line: str, decided: Decided
) -> None:
    tree = pipeline.render_tree(decided.decision)
    agreed = read_tree(decided, tree, REPOSITORY)
    wrong = read_tree(decided, _with_bundle(tree, change), REPOSITORY)
    changed = describe_difference({path: agreed[path]}, {path: wrong[path]})
    assert line in changed.splitlines()
    # The values pin the bundle and its plan by digest.
    assert "<sha256 of guest/bundle.zip>" in agreed[VALUES]
    assert "<sha256 of guest/bundle.zip>" not in wrong[VALUES]


@pytest.mark.parametrize("pinned", ["<the identity of the image>", "<sha256 of guest/bundle/plan.json>"])
def test_a_wrong_digest_among_the_values_shows(pinned: str, decided: Decided) -> None:
    tree = pipeline.render_tree(decided.decision)
    agreed = read_tree(decided, tree, REPOSITORY)
    assert pinned in agreed[VALUES]
    digest = {
        "<the identity of the image>": decided.decision.plan.image_id,
        "<sha256 of guest/bundle/plan.json>": tree[VALUES].decode().partition("-PlanSha256 ")[2][:64],
    }[pinned]
    wrong = {**tree, VALUES: tree[VALUES].replace(digest.encode(), b"0" * 64)}
    assert pinned not in read_tree(decided, wrong, REPOSITORY)[VALUES]


def _restore(base: str, difference: str) -> str:
    """What a difference makes of its base, hunk by hunk, each at the one place where its old lines are."""
    agreed, hunks = base.splitlines(), list[list[str]]()
    for line in difference.splitlines()[2:]:
        if line.startswith("@@"):
            hunks.append([])
        else:
            hunks[-1].append(line)
    lines = list(agreed)
    for hunk in reversed(hunks):
        old = [line[1:] for line in hunk if not line.startswith("+")]
        new = [line[1:] for line in hunk if not line.startswith("-")]
        [at] = [at for at in range(len(agreed) - len(old) + 1) if agreed[at : at + len(old)] == old]
        lines[at : at + len(old)] = new
    return "".join(f"{line}\n" for line in lines)


# Few lines, so that most of them occur more than once.
TEXTS = st.lists(st.sampled_from(["{", "  {", "    a", "  }", "", "b"]), max_size=12).map(
    lambda lines: "".join(f"{line}\n" for line in lines)
)


@given(base=TEXTS, now=TEXTS)
def test_a_difference_and_its_base_make_the_text(base: str, now: str) -> None:
    difference = describe_difference({"file": base}, {"file": now})
    assert _restore(base, difference) == now
    assert (difference == "") == (base == now)


def test_a_difference_names_files_that_are_there_once() -> None:
    base, now = {"both": "1\n", "old": "1\n"}, {"both": "1\n", "new": "1\n\n2"}
    assert describe_difference(base, now).splitlines() == [
        *("--- /dev/null", "+++ new", "+1", "+", "+2", "+\\ No newline at end of file"),
        *("--- old", "+++ /dev/null"),
    ]
    assert describe_difference({"file": "1"}, {"file": "1\n"}) != ""


def test_a_hunk_says_where_it_is() -> None:
    base = '{\n  "phases": [\n    {\n      "name": "node",\n      "steps": {\n        "a": 1,\n        "b": 2\n'
    difference = describe_difference({"file": base}, {"file": base.replace("2", "3")})
    assert difference.splitlines()[2:] == [
        '@@ "phases": [ "name": "node", "steps": {',
        *('         "a": 1,', '-        "b": 2', '+        "b": 3'),
    ]
