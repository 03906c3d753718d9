"""The boot of an image with an option says what the node loses when a part of the option is taken away."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.access import USERS, AccessEntry, write
from imagegen.rehearsal.machine.registry import Value
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
PROVIDER = (
    "credential_providers=[{name: registry, url: 'https://artifacts.example.com/x', match_images: ['*.example.com']}]"
)
PROVIDER_CONFIG = r"C:\var\lib\kubelet\credential-provider-config.yaml"
PROVIDER_FOLDER = r"C:\var\lib\kubelet\credential-provider"
CSI_LOG = r"C:\var\log\csi-proxy"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An image with every option of the cases."""
    return make_image(
        "azure", tmp_path_factory.mktemp("image"), load_today(BASE, "csi_proxy={}", "debug_tools=true", PROVIDER)
    )


def change_command(service: str, old: str, new: str) -> Change:
    def change(machine: Machine) -> None:
        command = machine.services.command(service)
        assert old in command
        machine.services.configure(service, "ImagePath", Value("ExpandString", command.replace(old, new)))

    return change


def open_to_users(path: str) -> Change:
    def change(machine: Machine) -> None:
        write(machine.files, path, [AccessEntry(USERS, "ReadAndExecute", inherit=True)], protected=True)

    return change


@dataclasses.dataclass(frozen=True)
class Case:
    """What is changed, and what the faults say."""

    name: str
    change: Change
    faults: tuple[str, ...]


REGISTER = "Failed to register CRI auth plugins:"
UNKNOWN = "credential-providers: kubelet does not know the credential provider registry (N14)"


def kubelet_ends(why: str) -> tuple[str, ...]:
    """What is said of a kubelet that ends before it registers its node."""
    end = f"{REGISTER} {why}"
    return (f"join: kubelet does not run: {end}", f"kubelet: kubelet does not run: {end}", UNKNOWN)


CASES = (
    Case(
        "credential-providers-are-not-told",
        lambda machine: machine.files.write(r"C:\k\kubelet-arguments.txt", b""),
        (UNKNOWN,),
    ),
    Case(
        "credential-provider-is-gone",
        lambda machine: machine.files.remove(rf"{PROVIDER_FOLDER}\registry.exe"),
        kubelet_ends(rf"plugin binary executable {PROVIDER_FOLDER}\registry did not exist"),
    ),
    Case(
        "credential-providers-folder-is-gone",
        lambda machine: machine.files.remove(PROVIDER_FOLDER),
        kubelet_ends(f"plugin binary directory {PROVIDER_FOLDER} did not exist"),
    ),
    Case(
        "credential-provider-config-is-gone",
        lambda machine: machine.files.remove(PROVIDER_CONFIG),
        kubelet_ends("unable to read external registry credential provider configuration"),
    ),
    Case(
        "credential-provider-config-has-an-old-version",
        lambda machine: change_text(machine, PROVIDER_CONFIG, "k8s.io/v1\nkind", "k8s.io/v2\nkind"),
        kubelet_ends(f"error decoding config {PROVIDER_CONFIG}: no kind"),
    ),
    Case(
        "credential-providers-are-open",
        open_to_users(PROVIDER_FOLDER),
        (
            f"closed-folders: others than administrators may read or write {PROVIDER_FOLDER} "
            rf"({USERS}: ReadAndExecute), {PROVIDER_FOLDER}\registry.exe ({USERS}: ReadAndExecute)",
        ),
    ),
    Case(
        "a-debug-script-is-gone",
        lambda machine: machine.files.remove(r"C:\k\debug\VFP.psm1"),
        (
            r"own-files: C:\k\debug\VFP.psm1 is missing",
            r"release-record: the release record is wrong: C:\k\debug\VFP.psm1 is not there",
        ),
    ),
    Case(
        "csi-proxy-is-gone",
        lambda machine: machine.files.remove(r"C:\k\csi-proxy.exe"),
        (
            r"services: service csi-proxy does not run: cannot find its program C:\k\csi-proxy.exe (error 2)",
            r"release-record: the release record is wrong: C:\k\csi-proxy.exe is not there",
        ),
    ),
    Case(
        "csi-proxy-is-no-service",
        lambda machine: machine.services.remove("csi-proxy"),
        ("services: service csi-proxy does not run: it is not in the image",),
    ),
    Case(
        "csi-proxy-is-started-by-hand",
        lambda machine: machine.services.configure("csi-proxy", "Start", Value("DWord", 3)),
        ("services: service csi-proxy does not run",),
    ),
    Case(
        "csi-proxy-does-not-answer",
        change_command("csi-proxy", " -windows-service", ""),
        (
            r"services: service csi-proxy does not run: C:\k\csi-proxy.exe did not answer the service manager: it runs "
            "without -windows-service (error 1053)",
        ),
    ),
    Case(
        "csi-proxy-has-no-log",
        change_command("csi-proxy", " -logtostderr=false", ""),
        ("services: service csi-proxy keeps no log",),
    ),
    Case(
        "csi-proxy-has-an-open-log",
        open_to_users(CSI_LOG),
        (
            rf"services: others than administrators may read or write {CSI_LOG}\csi-proxy.log, the log of csi-proxy",
            f"closed-folders: others than administrators may read or write {CSI_LOG} ({USERS}: ReadAndExecute), "
            rf"{CSI_LOG}\csi-proxy.log ({USERS}: ReadAndExecute)",
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_boot_says_what_an_option_has_lost(case: Case, image: Image, tmp_path: Path) -> None:
    machine = image.machine.copy(tmp_path / "disk")
    case.change(machine)
    booted = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ))
    # Of a kubelet that ends, more is said than its cause.
    assert [said for said in case.faults if not any(line.startswith(said) for line in booted.faults)] == []
    assert len(booted.faults) == len(case.faults) or case.faults[-1] == UNKNOWN, "\n".join(booted.faults)


NSSM = r"HKLM:\SYSTEM\CurrentControlSet\Services\kubelet\Parameters"
NSSM_CASES = (
    Case(
        "nssm-is-gone",
        lambda machine: machine.files.remove(r"C:\k\nssm.exe"),
        ("kubelet: kubelet does not run",),
    ),
    Case(
        "kubelet-is-a-service-under-nssm",
        lambda machine: machine.files.write(r"C:\k\kubelet-arguments.txt", b""),
        (
            "kubelet: kubelet does not run: failed to run Kubelet: The service process could not connect to the "
            "service controller.",
        ),
    ),
    Case(
        "nssm-has-no-program",
        lambda machine: machine.registry.remove_value(NSSM, "Application"),
        ("kubelet: kubelet does not run: nssm.exe cannot start",),
    ),
)


@pytest.fixture(scope="module")
def nssm_image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    config = load_today(BASE, "kubernetes.service_manager=nssm")
    return make_image("aws", tmp_path_factory.mktemp("nssm"), config)


@pytest.mark.parametrize("case", NSSM_CASES, ids=lambda case: case.name)
def test_the_boot_says_what_nssm_has_lost(case: Case, nssm_image: Image, tmp_path: Path) -> None:
    machine = nssm_image.machine.copy(tmp_path / "disk")
    case.change(machine)
    booted = boot_image(dataclasses.replace(nssm_image, machine=machine), Runner(tmp_path, os.environ))
    assert [said for said in case.faults if not any(line.startswith(said) for line in booted.faults)] == []


def test_the_image_of_the_cases_comes_up(image: Image, tmp_path: Path) -> None:
    booted = boot_image(image, Runner(tmp_path, os.environ))
    assert booted.faults == []
    assert "the services that the config adds run, and keep logs that are closed to Users" in booted.lines
