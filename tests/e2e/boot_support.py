"""Shared code of the boot's tests: the model machine as a build captured it, without Packer and the clouds."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.catalog.facts import paths
from imagegen.files import write_tree
from imagegen.pipeline import prepare_target
from imagegen.rehearsal import guest
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.boot.boot import Image, boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.engine import run_entry
from imagegen.rehearsal.machine.generalise import generalise
from imagegen.rehearsal.machine.stock import stock_windows
from tests.conftest import make_test_lock
from tests.e2e.rehearsal_support import loaded

if TYPE_CHECKING:
    from imagegen import loading
    from imagegen.rehearsal.boot.boot import Boot
    from imagegen.rehearsal.machine.windows import Machine


def capture(target: str, folder: Path, config: loading.Loaded | None = None) -> Machine:
    """Build a config's tree on the model machine, seal it, and return it: its disk is the image.

    Without a config it is the shipped one.
    """
    config = config or loaded()
    prepared, spec = prepare_target(config, target), config.specs[target]
    artifacts = make_artifacts(prepared.steps)
    machine = stock_windows(folder, release=spec.config.windows.release, cloud=spec.provider)
    tree = pipeline.render_tree(pipeline.decide(prepared, make_test_lock(config, target)))
    with tempfile.TemporaryDirectory() as scratch:
        write_tree(tree, Path(scratch) / "tree")
        expected = guest.expected_from_tree(Path(scratch) / "tree")
    machine.files.write(guest.BUNDLE_PATH, expected.bundle)
    for phase in expected.phases:
        outcome = run_entry(machine, phase.arguments, lambda url, _proxy: artifacts[url])
        assert outcome.exit_code in (0, 3010), outcome.output
        if phase.restart:
            machine.restart()
    outcome = generalise(machine, cloud=spec.provider)
    assert outcome.exit_code == 0, outcome.output
    return machine


def make_image(target: str, folder: Path, config: loading.Loaded | None = None) -> Image:
    """The captured machine of a config, with what `--rehearse` takes from the config."""
    config = config or loaded()
    spec = config.specs[target]
    return Image(
        capture(target, folder, config),
        spec.provider,
        spec.config.kubernetes.version,
        spec.config.cloudbase_init.version,
        {**paths(), "kubernetes": spec.config.kubernetes.install_path},
        spec.config.host_names.netbios_compatible,
    )


def boot_config(config: loading.Loaded, target: str, folder: Path) -> Boot:
    """Build an image of a config, and start a node from it."""
    return boot_image(make_image(target, folder / "image", config), Runner(folder, os.environ))
