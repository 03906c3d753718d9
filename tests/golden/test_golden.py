"""Rendered trees, compared with what was read and agreed: whole for one config, as a difference from it for the others.

To update after reading the difference: make golden.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from tests.conftest import REPOSITORY
from tests.golden.readable import describe_difference, read_tree
from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Decided

    Decide = Callable[[Path, str], Decided]

YEARS = [f"windows-{year}-containerd" for year in (2019, 2022, 2025)]
HERE = Path(__file__).parent
CONFIGS = REPOSITORY / "configs"
# What plans: tests/unit/config/test_shipped.py knows those that are refused, and why.
SHIPPED = [CONFIGS / f"{name}.yaml" for name in ("air-gapped", "annual-channel", *YEARS)]
CASES = [
    (file, target)
    for file in [*sorted(HERE.glob("*.yaml")), *SHIPPED]
    for target in ("aws", "azure")
    if re.search(rf"^  {target}:", file.read_text(), re.MULTILINE)
]
# Its trees are kept whole.
BASE = CONFIGS / "windows-2022-containerd.yaml"
# The tests, and the configs with the scripts that they name.
INPUTS = (".pem", ".ps1", ".py", ".pyc", ".yaml")
IDENTITIES = HERE / "identities.txt"


def _texts(file: Path, target: str, decide: Decide) -> dict[str, str]:
    decided = decide(file, target)
    return read_tree(decided, pipeline.render_tree(decided.decision), REPOSITORY)


@pytest.mark.parametrize(("file", "target"), CASES, ids=[f"{file.stem}-{target}" for file, target in CASES])
def test_tree_is_as_agreed(file: Path, target: str, decide: Decide) -> None:
    now, folder = _texts(file, target, decide), HERE / file.stem
    if file == BASE:
        stale = dict.fromkeys(path for path in (folder / target).rglob("*") if path.is_file())
        compare_golden({**stale, **{folder / target / path: text for path, text in now.items()}})
    else:
        compare_golden({folder / f"{target}.diff": describe_difference(_texts(BASE, target, decide), now)})


def test_identities_are_as_agreed(decide: Decide) -> None:
    """The one place where every changed byte shows. Whoever changes a line says by it: these images are built again."""
    identities = {(file.stem, target): decide(file, target).decision.plan.image_id for file, target in CASES}
    rows = [f"{name} {target} {identity}\n" for (name, target), identity in sorted(identities.items())]
    compare_golden({IDENTITIES: "".join(rows)})


def test_only_identities_are_digests() -> None:
    """A digest that is the digest of nothing known would stand in a golden as it is."""
    texts = {path: path.read_text() for path in HERE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert [path for path, text in texts.items() if re.search("[0-9a-f]{64}", text)] == [IDENTITIES]


def test_every_golden_has_its_case() -> None:
    diffs = {HERE / file.stem / f"{target}.diff" for file, target in CASES if file != BASE}
    trees = [HERE / BASE.stem / target for file, target in CASES if file == BASE]
    found = {path for path in HERE.rglob("*") if path.is_file() and path.suffix not in INPUTS}
    assert {path for path in found if not any(path.is_relative_to(tree) for tree in trees)} == {IDENTITIES, *diffs}


def test_cases_cover_both_clouds_and_every_shipped_config() -> None:
    assert {target for _, target in CASES} == {"aws", "azure"}
    assert SHIPPED
    assert {file.stem for file, _ in CASES} >= {file.stem for file in SHIPPED} | {"minimal", "maximal"}
