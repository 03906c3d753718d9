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

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.drift import Bundle
from imagegen.rehearsal.cloudbase_init.run import Runner
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
)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An image with everything that a node changes."""
    return make_checked_image("azure", tmp_path_factory.mktemp("image"), load_today(BASE, *SETS))


def boot(image: Image, folder: Path) -> list[str]:
    """What the verdict says of drift, and of everything that failed."""
    booted = boot_image(image, Runner(folder, os.environ))
    return booted.faults or [line for line in booted.lines if "drift" in line]


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


def test_a_node_that_only_joined_has_not_drifted(image: Image, tmp_path: Path) -> None:
    assert boot(image, tmp_path) == ["start.ps1 -Check finds no drift on the node, and finds a file that was changed"]


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
