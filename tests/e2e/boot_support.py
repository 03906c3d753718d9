"""Shared code of the boot's tests: the model machine as a build captured it, without Packer and the clouds."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.base.files import write_tree
from imagegen.boot.judge import judge
from imagegen.pipeline import prepare_target
from imagegen.rehearsal import expected as tree_of
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.booted import Boot, Image
from imagegen.rehearsal.boot.user_data import make_user_data
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.engine import run_entry
from imagegen.rehearsal.machine.seal import generalise
from imagegen.rehearsal.machine.stock import stock_windows
from tests.conftest import REPOSITORY, make_test_lock
from tests.e2e.rehearsal_support import loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.fetch.lock import Lock
    from imagegen.plan import loading
    from imagegen.plan.target import PreparedTarget
    from imagegen.rehearsal.artifacts import Sign
    from imagegen.rehearsal.boot.model import Instance
    from imagegen.rehearsal.boot.user_data import Join, UserData
    from imagegen.rehearsal.boot.view import MachineNode
    from imagegen.rehearsal.machine.windows import Machine

CLUSTER_DATA = REPOSITORY / "tests" / "data" / "capi-userdata"
# What user data must say for a kubelet that asks Docker itself.
_SANDBOX_IMAGE = "pod-infra-container-image"


def capture(
    target: str,
    folder: Path,
    config: loading.Loaded | None = None,
    *,
    sign: Sign | None = None,
    lock: Lock | None = None,
) -> Machine:
    """Build a config's tree on the model machine, seal it, and return it: its disk is the image.

    Without a config it is the shipped one. `sign` signs the stand-ins of the lock.
    """
    config = config or loaded()
    prepared, spec = prepare_target(config, target), config.specs[target]
    artifacts = make_artifacts(prepared.steps, sign)
    accounts = spec.settings.restricted_address_users
    machine = stock_windows(folder, release=spec.config.windows.release, cloud=spec.provider, accounts=accounts)
    lock = lock or _call_unsigned(make_test_lock(config, target), prepared)
    tree = pipeline.render_tree(pipeline.decide(prepared, lock))
    with tempfile.TemporaryDirectory() as scratch:
        write_tree(tree, Path(scratch) / "tree")
        expected = tree_of.expected_from_tree(Path(scratch) / "tree")
    machine.files.write(tree_of.BUNDLE_PATH, expected.bundle)
    for phase in expected.phases:
        outcome = run_entry(machine, phase.arguments, lambda url, *_: artifacts[url])
        assert outcome.exit_code in (0, 3010), outcome.output
        if phase.restart:
            machine.restart()
    outcome = generalise(machine, cloud=spec.provider)
    assert outcome.exit_code == 0, outcome.output
    return machine


def _call_unsigned(lock: Lock, prepared: PreparedTarget) -> Lock:
    """The lock as if no file of an artifact that must be signed were a program: nobody signs these stand-ins."""
    entries = dict(lock.artifacts)
    for name, request in prepared.signatures.items():
        used = sorted(request.used.select(entries[name].members))
        entries[name] = entries[name].model_copy(update={"signed": {}, "not_programs": used})
    return lock.model_copy(update={"artifacts": entries})


def make_image(target: str, folder: Path, config: loading.Loaded | None = None) -> Image:
    """The captured machine of a config."""
    config = config or loaded()
    return Image(capture(target, folder, config), config.specs[target])


def spoil(node: MachineNode, folder: Path, change: Callable[[Machine], object]) -> MachineNode:
    """A copy of a booted machine, with a change."""
    machine = node.machine.copy(folder)
    change(machine)
    return dataclasses.replace(node, machine=machine)


def find_faults(node: MachineNode, *checks: str) -> list[str]:
    """What the checks with these names say is wrong."""
    return [verdict.line for verdict in judge(node, checks) if not verdict.passed]


def check_node(machine: Machine, tree: Path) -> str:
    """What start.ps1 -Check of this tree prints on a machine."""
    expected = tree_of.expected_from_tree(tree)
    machine.files.write(tree_of.BUNDLE_PATH, expected.bundle)
    # After -Phase and its value.
    pins = expected.phases[0].arguments[2:]
    outcome = run_entry(machine, ["-Phase", "all", *pins, "-Check"], lambda *_: b"")
    machine.files.remove(tree_of.BUNDLE_PATH)
    return outcome.output


def boot(
    image: Machine,
    target: str,
    folder: Path,
    make_data: Callable[[Join], UserData] = make_user_data,
    change_instance: Callable[[Instance], Instance] = lambda instance: instance,
) -> Boot:
    """Start a node of the shipped config from a captured machine, as `--rehearse` does."""
    spec = loaded().specs[target]
    return boot_image(Image(image, spec), Runner(folder, os.environ), make_data, change_instance)


def change_text(machine: Machine, path: str, old: str, new: str) -> None:
    """Change a file of the image; a change that changes nothing is a defect of the test."""
    data = machine.files.read(path)
    assert old.encode() in data, f"{path} has no {old!r}"
    machine.files.write(path, data.replace(old.encode(), new.encode()))


def read_cluster_data(name: str, join: Join) -> str:
    """User data that Cluster API's kubeadm bootstrap provider wrote, for another cluster to join.

    It has the version of kubeadm's configuration that the provider writes for this Kubernetes.
    """
    text = (CLUSTER_DATA / join.api_version / f"{name}.yaml").read_text(encoding="utf-8")
    image = join.kubelet_arguments.get(_SANDBOX_IMAGE)
    for form, value in (
        (r"apiServerEndpoint: \S+", f"apiServerEndpoint: {join.endpoint}"),
        (r"sha256:[0-9a-f]{64}", join.ca_cert_hash),
        (r"token: \S+", f"token: {join.token}"),
        *([(rf"{_SANDBOX_IMAGE}: \S+", f"{_SANDBOX_IMAGE}: {image}")] if image else []),
    ):
        text, count = re.subn(form, value, text)
        assert count == 1, f"{name}.yaml holds {form} {count} times"
    assert f"criSocket: {join.socket}\n" in text, f"{name}.yaml names another container runtime"
    return text


def make_cluster_data(name: str) -> Callable[[Join], UserData]:
    """The same, with the secrets in it."""
    return lambda join: dataclasses.replace(make_user_data(join), text=read_cluster_data(name, join).encode())
