"""A provider is a folder: one that lies anywhere, and one line that registers it, go from `validate` to Packer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import REPOSITORY
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Ran = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.e2e

CONFIG = """\
name: example
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
targets:
  aws: {region: us-east-1, network: {allowed_cidrs: ["192.0.2.0/24"]}}
  toy: {street: main}
  attic: {provider: toy, street: side}
"""

REGISTER = """\
from imagegen.providers.registry import PROVIDERS
PROVIDERS["toy"] = "toy_cloud"
"""
CLI = "import sys\nfrom imagegen.cli.main import main\nsys.argv[0] = 'imagegen'\nmain()\n"
# Artifacts' digests are those of test bytes, as of any cloud; the base image is what the toy cloud says.
LOCK = """\
import sys, pathlib
from imagegen.fetch.lock import lock_bytes
from imagegen.providers import RunFacts
from imagegen.providers.provider import provider
from tests.conftest import load_today, make_test_lock
config = pathlib.Path(sys.argv[1])
loaded, toy = load_today(config), provider("toy")
lock = make_test_lock(loaded, "aws")
specs = {name: spec for name, spec in loaded.specs.items() if spec.provider == "toy"}
requests = {name: toy.base_request(spec.settings, spec.offered_image) for name, spec in specs.items()}
run = RunFacts({}, {}, "")
bases = {name: toy.look_up_base(specs[name].settings, request, run) for name, request in requests.items()}
config.with_name("config.lock.json").write_bytes(lock_bytes(lock.model_copy(update={"base_images": bases})))
"""
CHECK = """\
import os, pathlib, sys
from imagegen import pipeline
from imagegen.fetch import locking
from imagegen.build.packer import BuildFolder
from imagegen.base.console import Console
from imagegen.run import Run
from tests.conftest import load_today
config, tree = map(pathlib.Path, sys.argv[1:])
loaded, run = load_today(config), Run(os.environ, {}, "", console=Console(sys.stderr, plain=True))
toy = pipeline.prepare_target(loaded, "toy")
decision = pipeline.decide(toy, locking.read_lock_for(toy, config.with_name("config.lock.json")))
tools = pipeline.find_toolchain(decision.plan, run)
pipeline.check(decision.plan, tools, BuildFolder(tree.parent), run)
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(REPOSITORY / "tests" / "data" / "toy_cloud", tmp_path / "toy_cloud")
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def run(tmp_path: Path, tools_are_here: None) -> Ran:  # noqa: ARG001 - Packer is there before a deadline begins
    """Runs a script in a process of its own that has registered the toy cloud: the config's model is made at import."""
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}", "SOURCE_DATE_EPOCH": "1795000000"}

    def ran(script: str, *words: object) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", REGISTER + script, *map(str, words)]
        return subprocess.run(  # noqa: S603 - this very Python
            argv, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=HANG_S, check=False
        )

    return ran


def said(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_provider_of_one_folder_goes_from_validate_to_packer(config: Path, run: Ran) -> None:
    assert said(run(CLI, "validate", config)) == f"{config}: ok (example for aws, toy, attic)\n"
    said(run(LOCK, config))
    values = {
        value["path"]: value["value"]
        for value in json.loads(said(run(CLI, "explain", config, "--format", "json")))["values"]
    }
    assert values["targets.attic.street"] == "side"
    assert values["cloudbase_init.metadata_services.toy"][0].endswith("ConfigDriveService")
    plans: dict[str, Any] = {}
    for name in ("toy", "attic"):
        plans[name] = json.loads(said(run(CLI, "plan", config, "--target", name, "--format", "json")))
    assert plans["toy"]["image"]["base"] == {"name": "windows-2022-core"}
    assert plans["toy"]["image_id"] == plans["attic"]["image_id"]
    assert not [name for name in plans["toy"]["image"]["files"] if "agent-config" in name]
    tree = said(run(CLI, "render", config, "--target", "toy", "--out", config.parent / "out")).strip()
    said(run(CHECK, config, tree))


def test_its_settings_and_rules_are_told_as_any_clouds(config: Path, run: Ran) -> None:
    done = run(CLI, "validate", config, "--set", "targets.attic.street=dead-end", "--set", "targets.toy.strete=main")
    assert done.returncode == 2
    assert 'targets.toy.strete: unknown key "strete"\n  hint: did you mean "street"?' in done.stderr
    done = run(CLI, "validate", config, "--set", "targets.attic.street=dead-end")
    assert "targets.attic.street: nothing leads out of a dead end [toy-street]" in done.stderr
    words = ("--target", "toy", "--street", "main", "--allow-cidr", "198.51.100.7/32")
    said(run(CLI, "init", config.with_name("first.yaml"), *words))
    assert "  toy:\n    street: main\n" in config.with_name("first.yaml").read_text()
    schema = json.loads(said(run(CLI, "schema")))
    assert {"aws", "azure", "toy"} == set(schema["$defs"]["Targets"]["properties"])
    assert "toy" in schema["$defs"]["Plugins"]["properties"]
