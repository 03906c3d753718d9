"""Mistakes in the data of steps (tests/mutants/data.yml): which of them validation finds, and who finds the others."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from imagegen.base import contents
from imagegen.base.contents import PACKER, ROLES, Contents, StepRoot
from imagegen.base.errors import ConfigError
from imagegen.plan import loading
from imagegen.steps import model
from tests.conftest import REPOSITORY, TODAY
from tests.mutants.run import Mutant, read_mutants

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

CONTAINERD: Final = ("configs/windows-2022-containerd.yaml",)
FLANNEL: Final = ("tests/bench/maximal.yaml",)
# The config whose validation finds the mistake, with values of --set.
VALIDATED: Final = {
    **dict.fromkeys(("D01", "D06", "D07", "D08", "D09", "D10", "D11", "D15", "D22", "D24", "D25"), CONTAINERD),
    **dict.fromkeys(("D26", "D27", "D28", "D29", "D30", "D34"), CONTAINERD),
    **dict.fromkeys(("D19", "D20", "D21"), FLANNEL),
    "D17": (*CONTAINERD, "cni={plugin: win-bridge}"),
    "D23": ("configs/docker.yaml",),
}
# containerd's and libcni's own code: tests/unit/render/test_consumers.py and tests/e2e/test_consumers.py.
BY_CONSUMERS: Final = {"D02", "D03", "D05", "D18"}
# cloudbase-init's own options, and its run on a booted machine.
BY_CLOUDBASE_INIT: Final = {"D12", "D13", "D14", "D33"}
# Tests of rendered values alone see them: no program refuses the text. D35 is harmless: the folder above is closed.
BY_NOBODY: Final = {"D04", "D31", "D32", "D35"}

MISTAKES: Final = {mutant.id: mutant for mutant in read_mutants() if mutant.id[0] == "D" and mutant.id[1:].isdigit()}


def test_each_mistake_is_in_one_group() -> None:
    groups = (VALIDATED.keys(), BY_CONSUMERS, BY_CLOUDBASE_INIT, BY_NOBODY)
    assert sorted(name for group in groups for name in group) == sorted(MISTAKES)
    assert sum(map(len, groups[:3])) >= 30


@pytest.mark.parametrize("name", VALIDATED)
def test_validate_finds_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, *sets = VALIDATED[name]
    roles = _plant(MISTAKES[name], tmp_path)
    for module in (contents, model):
        monkeypatch.setattr(module, "ROLES", roles)
    changed = Contents(PACKER, (StepRoot(roles, "ansible-win/roles"),))
    with pytest.raises(ConfigError) as failed:
        loading.load(loading.ConfigRequest(REPOSITORY / file, TODAY, tuple(sets), changed))
    assert [problem.file for problem in failed.value.problems if "resources.yml" in problem.file]


def _plant(mistake: Mutant, folder: Path) -> Path:
    """A copy of the steps with the mistake."""
    roles = folder / "roles"
    shutil.copytree(ROLES, roles)
    file = roles.joinpath(mistake.file.removeprefix("ansible-win/roles/"))
    text = file.read_text()
    assert text.count(mistake.old) == 1
    file.write_text(text.replace(mistake.old, mistake.new))
    return roles
