"""Hyper-V on a booted node: built where the processor shows no virtualization, and each thing that is lost is said."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.image import Image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.optional_features import HYPERVISOR
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import DISABLED
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
CONFIG = r"C:\Program Files\containerd\config.toml"
OLD = ("runtime.containerd.version=1.7.35", "kubernetes.version=1.30.14", "allow_eol=true")
IMAGES = {
    "tools": ("windows.hyper_v=tools",),
    "isolation": ("windows.hyper_v=isolation", "targets.aws.instance_types=[m8i.large]"),
    "isolation, schema 2": ("windows.hyper_v=isolation", "targets.aws.instance_types=[m8i.large]", *OLD),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    """The captured machine of each level."""
    made: dict[str, Image] = {}

    def image(name: str) -> Image:
        if name not in made:
            made[name] = make_image("aws", tmp_path_factory.mktemp("image"), load_today(BASE, *IMAGES[name]))
        return made[name]

    return image


def boot(image: Image, change: Change, folder: Path) -> dict[str, str]:
    """The lines of the checks that failed, by name."""
    machine = image.machine.copy(folder / "disk")
    change(machine)
    spoiled = Image(**{**vars(image), "machine": machine})
    booted = boot_image(spoiled, Runner(folder, os.environ))
    assert booted.unknown == ()
    assert "hyper-v" in {verdict.check.name for verdict in booted.verdicts}
    return {verdict.check.name: verdict.line for verdict in booted.verdicts if not verdict.passed}


@pytest.mark.parametrize("name", IMAGES)
def test_a_node_has_hyper_v(images: Callable[[str], Image], tmp_path: Path, name: str) -> None:
    assert boot(images(name), lambda _: None, tmp_path) == {}


def test_a_node_that_wants_none_is_not_judged(tmp_path: Path) -> None:
    image = make_image("aws", tmp_path / "image", load_today(BASE))
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "hyper-v" not in {verdict.check.name for verdict in booted.verdicts}


def disable_service(machine: Machine) -> None:
    machine.services.configure("vmms", "Start", Value("DWord", DISABLED))


def cannot_nest(machine: Machine) -> None:
    machine.features.nests = False


def replace(old: str, new: str) -> Change:
    return lambda machine: change_text(machine, CONFIG, old, new)


HANDLER = "runtimes.runhcs-wcow-hypervisor-17763"
PLATFORM = "platform = 'windows(10.0.17763)/amd64'"
NO_SERVICE = "the service of Hyper-V does not run (N13)"
# What is spoiled, the level, the change and the line.
SPOILED: tuple[tuple[str, str, Change, str], ...] = (
    ("service", "tools", disable_service, NO_SERVICE),
    (
        "commands",
        "tools",
        lambda machine: machine.features.uninstall("Hyper-V-PowerShell"),
        "PowerShell has no commands of Hyper-V (N13)",
    ),
    (
        "hypervisor with the tools",
        "tools",
        lambda machine: machine.optional_features.write(HYPERVISOR, "Enabled"),
        "the hypervisor runs, and the config has only the tools (N13)",
    ),
    (
        "hypervisor",
        "isolation",
        lambda machine: machine.optional_features.write(HYPERVISOR, "Disabled"),
        "the hypervisor does not run, so no pod can be isolated (N13)",
    ),
    ("size", "isolation", cannot_nest, "the hypervisor does not run, so no pod can be isolated (N13)"),
    ("handler", "isolation", replace(HANDLER, "runtimes.other"), f"containerd has no handler {HANDLER[9:]}"),
    (
        "handler's isolation",
        "isolation, schema 2",
        replace("SandboxIsolation = 1", "SandboxIsolation = 0"),
        "containerd has no handler runhcs-wcow-hypervisor, runhcs-wcow-hypervisor-17763,",
    ),
    ("handler's images", "isolation", replace(PLATFORM, ""), f"containerd has no handler {HANDLER[9:]}"),
)


@pytest.mark.parametrize(("name", "change", "line"), [row[1:] for row in SPOILED], ids=[row[0] for row in SPOILED])
def test_what_is_lost_is_said(
    images: Callable[[str], Image], tmp_path: Path, name: str, change: Change, line: str
) -> None:
    failed = boot(images(name), change, tmp_path)
    assert list(failed) == ["hyper-v"]
    assert line in failed["hyper-v"]
