"""Whole rendered trees, compared with what was read and agreed. To update after reading the difference: make golden."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from collections.abc import Callable

YEARS = [f"windows-{year}-containerd" for year in (2019, 2022, 2025)]
HERE = Path(__file__).parent
CONFIGS = HERE.parent.parent / "configs"
# What plans: tests/unit/config/test_shipped.py knows those that are refused, and why.
SHIPPED = [CONFIGS / f"{name}.yaml" for name in ("air-gapped", "annual-channel", *YEARS)]
CASES = [
    (file, target)
    for file in [*sorted(HERE.glob("*.yaml")), *SHIPPED]
    for target in ("aws", "azure")
    if re.search(rf"^  {target}:", file.read_text(), re.MULTILINE)
]


def readable(tree: dict[str, bytes]) -> dict[str, str]:
    """The tree as text: the bundle as its plan and the digests of its files, static files as their digests."""
    texts = {}
    digests = []
    for path, data in tree.items():
        if path == "guest/bundle.zip":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                plan = json.loads(archive.read("plan.json"))
                texts["guest/bundle/plan.json"] = json.dumps(plan, indent=1, sort_keys=True) + "\n"
                digests += [
                    f"{_sha256(archive.read(name))}  bundle/{name}"
                    for name in archive.namelist()
                    if name != "plan.json"
                ]
                rendered = [name for name in archive.namelist() if name.endswith((".conf", ".toml", ".yml", ".txt"))]
                texts |= {f"guest/bundle/{name}": archive.read(name).decode() for name in rendered}
        elif path.endswith((".hcl", ".json")):
            texts[path] = data.decode()
        else:
            digests.append(f"{_sha256(data)}  {path.removeprefix('guest/')}")
    # zlib's builds differ in the bytes of a zip, never in its content; what pins the zip is tested with the bundle.
    key = "image.auto.pkrvars.json"
    texts[key] = re.sub(r"-BundleSha256 [0-9a-f]{64}", "-BundleSha256 <of the zip>", texts[key])
    texts["guest/digests.txt"] = "\n".join(digests) + "\n"
    return texts


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("file", "target"), CASES, ids=[f"{file.stem}-{target}" for file, target in CASES])
def test_tree_is_as_agreed(file: Path, target: str, decide: Callable[..., object]) -> None:
    decided = decide(file, target)
    actual = readable(pipeline.render_tree(decided.decision))  # type: ignore[attr-defined]  # conftest's Decided
    folder = HERE / file.stem / target
    stale = dict.fromkeys(path for path in folder.rglob("*") if path.is_file())
    compare_golden({**stale, **{folder / path: text for path, text in actual.items()}})


def test_cases_cover_both_clouds_and_every_shipped_config() -> None:
    assert {target for _, target in CASES} == {"aws", "azure"}
    assert SHIPPED
    assert {file.stem for file, _ in CASES} >= {file.stem for file in SHIPPED} | {"minimal", "maximal"}
