"""The release record of an image is compared with its disk: each spoiled disk, or record, is found by name."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.release_record import PATH, look_at_sealing
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.access import USERS, AccessEntry, write
from imagegen.rehearsal.machine.container_store import ContainerStore
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

APP = "registry.example.com/app:1"
KUBELET = r"C:\k\kubelet.exe"
CONFIG = REPOSITORY / "tests" / "rules" / "base.yaml"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return make_image("azure", tmp_path_factory.mktemp("image"), load_today(CONFIG, f"images=[{APP}]"))


def edit(change: Callable[[dict[str, Any]], object]) -> Callable[[Machine], None]:
    """Change the record."""

    def spoil(machine: Machine) -> None:
        record = json.loads(machine.files.read(PATH))
        change(record)
        machine.files.write(PATH, json.dumps(record).encode())

    return spoil


SPOILED: dict[str, tuple[Callable[[Machine], object], str]] = {
    "no-record": (lambda m: m.files.remove(PATH), f"there is no release record {PATH}"),
    "no-json": (lambda m: m.files.write(PATH, b"{"), f"{PATH} is no release record: the whole file: Invalid JSON"),
    "no-identity": (edit(lambda r: r.pop("image_id")), f"{PATH} is no release record: image_id: Field required"),
    "another-version": (edit(lambda r: r.update(record_version=2)), f"{PATH} is no release record: record_version: "),
    "another-kubelet": (lambda m: m.files.write(KUBELET, b"MZ"), rf"{KUBELET} has other bytes"),
    "no-kubeadm": (lambda m: m.files.remove(r"C:\k\kubeadm.exe"), r"C:\k\kubeadm.exe is not there"),
    "another-windows": (
        edit(lambda r: r["windows"].update(build=17763)),
        "it says build 17763 of Windows, and the node has 20348",
    ),
    "another-version-of-kubernetes": (
        edit(lambda r: r["versions"].update(kubernetes="1.2.3")),
        "no program of the node is kubernetes 1.2.3",
    ),
    "another-cloudbase-init": (
        edit(lambda r: r["artifacts"]["cloudbase-init"]["product"].update(version="9.9.9")),
        " 9.9.9 is not installed",
    ),
    "an-artifact-is-missing": (
        edit(lambda r: r["artifacts"].pop("kubelet")),
        r"it does not name c:\k\kubelet.exe, which a service runs",
    ),
    "an-image-is-gone": (
        lambda m: ContainerStore(m).forget_image(APP),
        f"{APP} is not there with the digest sha256:",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_not_so_is_named(image: Image, tmp_path: Path, name: str) -> None:
    spoil, finding = SPOILED[name]
    machine = image.machine.copy(tmp_path)
    assert look_at_sealing(machine, image).record.model_dump() == {"failure": "", "wrong": ()}
    spoil(machine)
    found = look_at_sealing(machine, image).record
    assert any(finding in text for text in (found.failure, *found.wrong)), found


def test_a_boot_fails_where_the_record_is_spoiled_or_open(image: Image, tmp_path: Path) -> None:
    def boot(name: str) -> list[str]:
        return boot_image(image, Runner(tmp_path / name, os.environ)).faults

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert boot("a") == []
    image.machine.files.remove(PATH)
    image.machine.files.write(PATH, b"{}")
    write(image.machine.files, PATH, [AccessEntry(USERS, "Read", inherit=False)], protected=True)
    image.machine.event_logs.add("Setup")
    assert [fault.partition(":")[0] for fault in boot("b")] == ["leftovers", "release-record", "closed-folders"]
