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
from imagegen.pipeline import prepare_target
from imagegen.rehearsal import expected as tree_of
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.booted import Boot
from imagegen.rehearsal.boot.drift import Bundle
from imagegen.rehearsal.boot.image import Image, describe_image
from imagegen.rehearsal.boot.user_data import make_user_data
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.engine import run_entry
from imagegen.rehearsal.machine.generalise import generalise
from imagegen.rehearsal.machine.hns import NODE_ADDRESS
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.rehearsal.network.registries import Registries
from tests.conftest import REPOSITORY, make_test_lock
from tests.e2e.rehearsal_support import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.fetch.lock import Lock
    from imagegen.plan import loading
    from imagegen.plan.target import PreparedTarget
    from imagegen.rehearsal.artifacts import Sign
    from imagegen.rehearsal.boot.model import Instance
    from imagegen.rehearsal.boot.user_data import Join, UserData
    from imagegen.rehearsal.machine.windows import Machine

CLUSTER_DATA = REPOSITORY / "tests" / "data" / "capi-userdata"
# What user data must say for a kubelet that asks Docker itself.
_SANDBOX_IMAGE = "pod-infra-container-image"


def capture(target: str, folder: Path, config: loading.Loaded | None = None) -> Machine:
    """Build a config's tree on the model machine, seal it, and return it: its disk is the image.

    Without a config it is the shipped one.
    """
    return capture_with_bundle(target, folder, config)[0]


def capture_with_bundle(
    target: str,
    folder: Path,
    config: loading.Loaded | None = None,
    *,
    sign: Sign | None = None,
    lock: Lock | None = None,
) -> tuple[Machine, Bundle]:
    """As `capture`, with the bundle that made the image. `sign` signs the stand-ins of the lock."""
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
    images = prepared.images
    registries = Registries([*images], [url for image in images.values() for url in image.mirrors])

    def browse(
        url: str, headers: Mapping[str, str], authorization: str, _proxy: str | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        answer = registries.ask(url, headers, authorization)
        return answer.status, answer.headers, answer.body

    machine.browse = browse
    machine.files.write(tree_of.BUNDLE_PATH, expected.bundle)
    for phase in expected.phases:
        outcome = run_entry(machine, phase.arguments, lambda url, *_: artifacts[url])
        assert outcome.exit_code in (0, 3010), outcome.output
        if phase.restart:
            machine.restart()
    outcome = generalise(machine, cloud=spec.provider)
    assert outcome.exit_code == 0, outcome.output
    return machine, Bundle.of_tree(expected)


def _call_unsigned(lock: Lock, prepared: PreparedTarget) -> Lock:
    """The lock as if no file of an artifact that must be signed were a program: nobody signs these stand-ins."""
    entries = dict(lock.artifacts)
    for name, request in prepared.signatures.items():
        used = sorted(request.used.select(entries[name].members))
        entries[name] = entries[name].model_copy(update={"signed": {}, "not_programs": used})
    return lock.model_copy(update={"artifacts": entries})


def make_image(target: str, folder: Path, config: loading.Loaded | None = None) -> Image:
    """The captured machine of a config, with what `--rehearse` takes from the config."""
    config = config or loaded()
    return describe_image(capture(target, folder, config), config.specs[target])


def make_checked_image(target: str, folder: Path, config: loading.Loaded) -> Image:
    """As `make_image`, of which `-Check` says what has drifted on a node."""
    machine, bundle = capture_with_bundle(target, folder, config)
    return describe_image(machine, config.specs[target], bundle)


def boot(
    image: Machine,
    target: str,
    folder: Path,
    make_data: Callable[[Join], UserData] = make_user_data,
    change_instance: Callable[[Instance], Instance] = lambda instance: instance,
) -> Boot:
    """Start a node of the shipped config from a captured machine, as `--rehearse` does."""
    spec = loaded().specs[target]
    found = describe_image(image, spec)
    return boot_image(found, Runner(folder, os.environ), make_data, change_instance)


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
    # The address is that of the machine for which it was written.
    text = re.sub(r"(node-ip(?::|\s+value:) )\S+", rf"\g<1>{NODE_ADDRESS}", text)
    assert f"criSocket: {join.socket}\n" in text, f"{name}.yaml names another container runtime"
    return text


def make_cluster_data(name: str) -> Callable[[Join], UserData]:
    """The same, with the secrets in it."""
    return lambda join: dataclasses.replace(make_user_data(join), text=read_cluster_data(name, join).encode())
