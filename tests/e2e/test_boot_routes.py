"""Pods of two nodes with flannel's host-gw reach each other only by the static routes that flanneld sets on both."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
NET_CONF = r"C:\k\cni\net-conf.json"
FROM_NODE = "the node has no route to 10.244.0.0/24, the pods of control-plane"
TO_NODE = "control-plane has no route to 10.244.1.0/24, the pods of "


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    config = load_today(BASE, "cni.plugin=flannel", "cni.mode=host-gw")
    return make_image("aws", tmp_path_factory.mktemp("image"), config)


def test_flanneld_sets_the_routes_of_both_nodes(image: Image, tmp_path: Path) -> None:
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "pods of this node and of another one find each other" in booted.lines
    assert booted.machine.routes == {"10.244.0.0/24": "10.0.0.4"}


def use_overlay(machine: Machine) -> None:
    """flanneld ignores nodes with another backend, and they ignore it."""
    change_text(machine, NET_CONF, '"host-gw"', '"vxlan"')


@pytest.mark.parametrize(
    "spoil",
    [use_overlay, lambda machine: machine.files.remove(r"C:\k\cni\services.txt")],
    ids=["another backend", "no flanneld"],
)
def test_without_flanneld_nobody_sets_routes(image: Image, tmp_path: Path, spoil: Callable[[Machine], object]) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    spoil(machine)
    faults = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ)).faults
    (fault,) = [fault for fault in faults if fault.startswith("pod-routes: ")]
    assert FROM_NODE in fault
    assert TO_NODE in fault


def test_linux_nodes_need_the_same_backend(image: Image, tmp_path: Path) -> None:
    """As flannel-config.yaml of `imagegen samples` has it."""
    other = dataclasses.replace(image, flannel="vxlan")
    booted = boot_image(other, Runner(tmp_path, os.environ))
    assert booted.machine.routes == {}
