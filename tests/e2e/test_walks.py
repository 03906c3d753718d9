"""The walks of docs/walks.md: the commands of the page build images whose nodes come up and show what it says."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Final

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_image
from tests.e2e.rehearsal_support import DEADLINE_S, imagegen, user_environ

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.plan import loading
    from imagegen.rehearsal.boot.booted import Boot

pytestmark = pytest.mark.e2e

PAGE: Final = REPOSITORY / "docs" / "walks.md"
CONFIGS: Final = REPOSITORY / "tests" / "data" / "walks"
_COMMAND: Final = re.compile(r"(?ms)^```console\n\$ imagegen (build .*?)\n```$")
_CONFIG: Final = re.compile(r"(?ms)^```yaml\n(.*?)^```$")
# The last column of a row: the checks of the boot's verdict.
_SHOWN: Final = re.compile(r"(?m)^\|.*\| (`[^|]*) \|$")


@dataclasses.dataclass(frozen=True)
class Walk:
    """A section of the page."""

    command: tuple[str, ...]
    config: str
    checks: frozenset[str]

    @property
    def file(self) -> Path:
        (name,) = (word for word in self.command if word.endswith(".yaml"))
        return REPOSITORY / name


def _walks() -> list[Walk]:
    _, *sections = re.split(r"(?m)^## ", PAGE.read_text())
    found = []
    for section in sections:
        (command,) = _COMMAND.findall(section)
        (config,) = _CONFIG.findall(section)
        checks = {
            name for cell in _SHOWN.findall(section) for name in re.findall(r"`([a-z-]+)`", cell.partition(";")[0])
        }
        found.append(Walk(tuple(shlex.split(command.replace("\\\n", ""))), config, frozenset(checks)))
    return found


WALKS: Final = {walk.file.stem: walk for walk in _walks()}


def _boot(folder: Path, config: loading.Loaded) -> Boot:
    return boot_image(make_image("aws", folder / "image", config), Runner(folder, os.environ))


def test_every_config_is_a_walk() -> None:
    assert set(WALKS) == {file.stem for file in CONFIGS.glob("*.yaml")}


@pytest.mark.usefixtures("tools_are_here")
@pytest.mark.parametrize("name", WALKS)
def test_the_command_of_the_page_brings_a_node_up(tmp_path: Path, name: str) -> None:
    walk = WALKS[name]
    assert walk.config == walk.file.read_text()
    words = imagegen(*(walk.file if REPOSITORY / word == walk.file else word for word in walk.command))
    argv: list[str | Path] = [*words, "--out", tmp_path / "out", "--format", "json"]
    done = process.run(argv, environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    assert walk.checks
    assert walk.checks <= set(manifest["notes"]["rehearsal"]["boot"]["passed"])


@pytest.mark.parametrize("version", ["1.17.17", "1.19.16"])
def test_an_older_prepared_node_comes_up(tmp_path: Path, version: str) -> None:
    config = load_today(CONFIGS / "prepare-node.yaml", f"kubernetes.version={version}")
    booted = _boot(tmp_path, config)
    assert booted.faults == []
    checks = {verdict.check.name for verdict in booted.verdicts}
    assert WALKS["prepare-node"].checks <= checks


def test_user_data_calls_the_scripts_around_kubeadm(tmp_path: Path) -> None:
    sets = [word for word in WALKS["signed-overrides"].command if "=" in word]
    booted = _boot(tmp_path, load_today(CONFIGS / "signed-overrides.yaml", *sets))
    assert booted.faults == []
    scripts = [limit.split()[3].rpartition("\\")[2] for limit in booted.limits if "-kubeadm" in limit]
    assert scripts == ["01-before-join.ps1", "01-after-join.ps1"]
