"""-Check on a booted node: what a node changes itself is no drift, and everything else is."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.boot.judge import CHECKS
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.drift import Bundle
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.registry import Value
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_checked_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
SETS = (
    "cni.plugin=flannel",
    "kube_proxy=service",
    "windows.updates.categories=[security]",
    "ssh={}",
    "csi_proxy={}",
    "images=[registry.example.com/app:1]",
    "credential_providers=[{name: registry, url: 'https://artifacts.example.com/x', match_images: ['*.example.com']}]",
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An image with everything that a node changes."""
    return make_checked_image("azure", tmp_path_factory.mktemp("image"), load_today(BASE, *SETS))


NAMES = ("drift", "rejoin", "upgrade")
UPKEEP = [check.passes for check in CHECKS if check.name in NAMES]


def boot(image: Image, folder: Path) -> list[str]:
    """What the verdict says of drift, of joining again and of an upgrade: what failed, and otherwise what passed."""
    booted = boot_image(image, Runner(folder, os.environ))
    faults = [fault for fault in booted.faults if fault.startswith(tuple(f"{name}: " for name in NAMES))]
    return faults or [line for line in booted.lines if line in UPKEEP]


def with_plan(image: Image, change: Callable[[dict[str, object]], None]) -> Image:
    """The image, with another plan for -Check: `change` is given each resource of it."""
    assert image.bundle is not None
    with zipfile.ZipFile(io.BytesIO(image.bundle.data)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    plan = json.loads(contents["plan.json"])
    for resource in (one for phase in plan["phases"] for step in phase["steps"] for one in step["resources"]):
        change(resource)
    contents["plan.json"] = json.dumps(plan).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    data = buffer.getvalue()
    values = {
        "-BundleSha256": hashlib.sha256(data).hexdigest(),
        "-PlanSha256": hashlib.sha256(contents["plan.json"]).hexdigest(),
    }
    names = ("", *image.bundle.pins)
    pins = tuple(values.get(before, word) for before, word in zip(names, image.bundle.pins, strict=False))
    return dataclasses.replace(image, bundle=Bundle(data, pins))


def test_a_node_that_only_joined_has_not_drifted_and_joins_again(image: Image, tmp_path: Path) -> None:
    assert boot(image, tmp_path) == [
        "start.ps1 -Check finds no drift on the node, and finds a file that was changed",
        "after reset-node.ps1 the node joins again",
        "with the next patch release of kubelet in its place, the node runs it",
    ]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cloudbase-init/service:cloudbase-init", "start is automatic, not manual"),
        ("flannel/service:flanneld", "start is automatic, not manual"),
        ("kube-proxy/service:kube-proxy", "start is automatic, not manual"),
    ],
)
def test_what_a_node_changes_would_be_drift(image: Image, tmp_path: Path, name: str, reason: str) -> None:
    def hold_for_ever(resource: dict[str, object]) -> None:
        if resource["id"] == name:
            assert resource["until"] == "first-boot"
            resource["until"] = None

    [fault] = boot(with_plan(image, hold_for_ever), tmp_path)
    assert fault.startswith(f"drift: a node that only joined has drifted: {name}: {reason}")


def test_drift_is_found_by_its_name(image: Image, tmp_path: Path) -> None:
    machine = image.machine.copy(tmp_path / "spoiled")
    path = r"C:\k\rotated-logs.txt"
    machine.files.write(path, machine.files.read(path) + b" ")
    [fault] = boot(dataclasses.replace(image, machine=machine), tmp_path)
    assert fault.startswith(rf"drift: a node that only joined has drifted: kubernetes/file:{path}: sha256 is ")


def test_a_check_that_overlooks_a_changed_file_fails(image: Image, tmp_path: Path) -> None:
    def never_look(resource: dict[str, object]) -> None:
        if resource["id"] == r"kubernetes/file:C:\k\start-kubelet.ps1":
            resource["until"] = "first-boot"

    assert boot(with_plan(image, never_look), tmp_path) == [
        r"drift: C:\k\start-kubelet.ps1 was changed, and -Check found nothing and ended with 0"
    ]


def test_a_service_with_another_kubelet_is_not_upgraded(image: Image, tmp_path: Path) -> None:
    machine = image.machine.copy(tmp_path / "spoiled")
    machine.files.write(r"C:\k\old.exe", machine.files.read(r"C:\k\kubelet.exe"))
    command = machine.services.command("kubelet").replace(r"-Kubelet C:\k\kubelet.exe", r"-Kubelet C:\k\old.exe")
    machine.services.configure("kubelet", "ImagePath", Value("ExpandString", command))
    faults = boot(dataclasses.replace(image, machine=machine), tmp_path)
    [upgrade] = [fault for fault in faults if fault.startswith("upgrade: ")]
    assert upgrade.startswith(f"upgrade: the node runs kubelet {image.kubernetes}, not ")


def test_a_reset_by_kubeadm_alone_loses_parts_of_the_image(image: Image, tmp_path: Path) -> None:
    """What reset-node.ps1 is for: each of its parts is missed."""
    machine = image.machine.copy(tmp_path / "spoiled")
    command = b"C:\\k\\kubeadm.exe reset --force --cri-socket npipe:////./pipe/containerd-containerd\n"
    machine.files.write(r"C:\k\reset-node.ps1", command)
    drift, rejoin = boot(dataclasses.replace(image, machine=machine), tmp_path)
    assert drift.startswith(r"drift: a node that only joined has drifted: kubernetes/file:C:\k\reset-node.ps1")
    assert r"reset-node.ps1 left C:\etc\cni\net.d\10-flannel.conflist" in rejoin
    assert "the node did not come up again" in rejoin
    assert r"there is no folder C:\var\lib\kubelet\credential-provider" in rejoin
