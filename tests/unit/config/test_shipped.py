"""What configs/ ships: each builds, or says in itself what it waits for and is refused for exactly that."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.plan.loading import Loaded

CONFIGS = sorted(Path(__file__).parents[3].joinpath("configs").glob("*.yaml"))
MODELINE = "# yaml-language-server: $schema=imagegen.schema.json\n"


def test_what_is_shipped() -> None:
    assert {file.stem for file in CONFIGS} == {
        *("air-gapped", "annual-channel", "docker", "reference", "signed-artifacts"),
        *("windows-2019-containerd", "windows-2022-containerd", "windows-2025-containerd"),
    }


def test_the_readmes_config_is_one(tmp_path: Path, load: Callable[[Path], Loaded]) -> None:
    readme = Path(__file__).parents[3].joinpath("README.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    file = tmp_path / "readme.yaml"
    file.write_text(text)
    loaded = load(file)
    assert (loaded.warnings, loaded.unimplemented) == ((), ())


@pytest.mark.parametrize("file", CONFIGS, ids=[file.stem for file in CONFIGS])
def test_it_is_planned(file: Path, load: Callable[[Path], Loaded], decide: Callable[[Path, str], Any]) -> None:
    assert file.read_text().startswith(MODELINE)
    for target in load(file).config.targets.named():
        assert decide(file, target).decision.plan.image.provider == target
