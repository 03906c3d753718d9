"""Docker and cri-dockerd on a booted node: each that is spoiled on the captured disk fails its own check."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.user_data import UserData, make_user_data
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.docker_engine import EVENTS
from imagegen.rehearsal.machine.registry import Value
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, make_cluster_data, make_image

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.image import Image
    from imagegen.rehearsal.boot.user_data import Join
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

CONFIG = REPOSITORY / "tests" / "data" / "docker.yaml"
# With cri-dockerd; and with a kubelet that asks Docker itself.
SETS = {
    "cri-dockerd": (),
    "dockershim": (
        *("kubernetes.version=1.23.17", "runtime.docker.version=29.1.0", "runtime.docker.cri_dockerd=null"),
        "allow_eol=true",
    ),
}
NSSM = r"HKLM:\SYSTEM\CurrentControlSet\Services\cri-dockerd\Parameters"
DAEMON = r"C:\ProgramData\docker\config\daemon.json"
ARGUMENTS = r"C:\k\kubelet-arguments.txt"
PIPE = "npipe:////./pipe/"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    made: dict[str, Image] = {}

    def image(name: str) -> Image:
        if name not in made:
            made[name] = make_image("aws", tmp_path_factory.mktemp(name), load_today(CONFIG, *SETS[name]))
        return made[name]

    return image


def in_parameters(old: str, new: str) -> Change:
    def change(machine: Machine) -> None:
        text = machine.registry.text(NSSM, "AppParameters") or ""
        assert old in text
        machine.registry.write(NSSM, "AppParameters", Value("ExpandString", text.replace(old, new)))

    return change


def in_command(service: str, old: str, new: str) -> Change:
    def change(machine: Machine) -> None:
        text = machine.services.command(service)
        assert old in text
        machine.services.configure(service, "ImagePath", Value("ExpandString", text.replace(old, new)))

    return change


def in_file(path: str, old: str, new: str) -> Change:
    return lambda machine: change_text(machine, path, old, new)


def older_docker(machine: Machine) -> None:
    path = r"C:\Program Files\docker\dockerd.exe"
    change_text(machine, path, "29.", "19.")
    machine.files.remove(DAEMON)
    machine.files.write(DAEMON, b"{}")


def remove(path: str) -> Change:
    return lambda machine: machine.files.remove(path)


# The image, the name of the check, the change and the reason.
SPOILED: list[tuple[str, str, Change, str]] = [
    ("cri-dockerd", "docker", remove(DAEMON), "unable to configure the Docker daemon with file"),
    ("cri-dockerd", "docker", in_file(DAEMON, '"hosts"', '"host"'), "don't match any configuration option: host"),
    ("cri-dockerd", "docker", in_file(DAEMON, "docker_engine", "other"), f"does not listen at {PIPE}docker_engine"),
    (
        "cri-dockerd",
        "docker",
        in_command("docker", "--config-file", "-H npipe:// --config-file"),
        "specified both as a flag and in the configuration file: hosts",
    ),
    ("cri-dockerd", "docker", in_file(DAEMON, '"min-api-version": "1.43",', ""), "client version 1.43 is too old"),
    ("cri-dockerd", "docker", older_docker, "client version 1.43 is too new"),
    ("cri-dockerd", "docker", in_command("docker", "--run-service", ""), "it runs without --run-service (error 1053)"),
    (
        "cri-dockerd",
        "docker",
        lambda machine: machine.registry.remove_value(EVENTS, "EventMessageFile"),
        "have no text",
    ),
    ("cri-dockerd", "docker", lambda machine: machine.tasks.unregister("imagegen-host-network"), "network named host"),
    ("dockershim", "docker", in_file(DAEMON, '"min-api-version": "1.41",', ""), "client version 1.41 is too old"),
    (
        "dockershim",
        "docker",
        in_file(ARGUMENTS, r"--cni-conf-dir=C:\etc\cni\net.d", ""),
        "looks for network plugins in",
    ),
    ("dockershim", "docker", remove(r"C:\Program Files\docker\docker.exe"), "no network named host"),
    ("cri-dockerd", "cri-dockerd", remove(r"C:\Program Files\cri-dockerd\nssm.exe"), "cannot find its program"),
    ("cri-dockerd", "cri-dockerd", remove(r"C:\Program Files\cri-dockerd\cri-dockerd.exe"), "nssm.exe cannot start"),
    (
        "cri-dockerd",
        "cri-dockerd",
        in_command("cri-dockerd", "nssm.exe", "cri-dockerd.exe"),
        "it is no service (error 1053)",
    ),
    *(
        ("cri-dockerd", check, in_command("kubelet", f"{PIPE}cri-dockerd", f"{PIPE}docker_engine"), reason)
        for check, reason in (
            ("cri-dockerd", f"kubelet connects to {PIPE}docker_engine, and cri-dockerd answers at {PIPE}cri-dockerd"),
            ("kubelet", "it has no RuntimeService"),
        )
    ),
    ("cri-dockerd", "cri-dockerd", in_parameters(f"{PIPE}cri-dockerd", f"{PIPE}other"), "listens at"),
    ("cri-dockerd", "cri-dockerd", in_parameters(f"{PIPE}docker_engine", f"{PIPE}other"), "looks for Docker at"),
    ("cri-dockerd", "cri-dockerd", in_parameters(r"--cni-conf-dir=C:\etc\cni\net.d", ""), r"and C:\k\cni\config"),
    ("cri-dockerd", "cri-dockerd", in_parameters("pause:", "other:"), "cri-dockerd starts pods with"),
    (
        "cri-dockerd",
        "cri-dockerd",
        in_parameters("--network-plugin=cni", "--network-plugin=kubenet"),
        "no network plugin",
    ),
]


@pytest.mark.parametrize(("name", "check", "change", "reason"), SPOILED)
def test_a_spoiled_disk_fails_its_check(
    images: Callable[[str], Image], tmp_path: Path, name: str, check: str, change: Change, reason: str
) -> None:
    image = images(name)
    machine = image.machine.copy(tmp_path / "disk")
    change(machine)
    booted = boot_image(dataclasses.replace(image, machine=machine), Runner(tmp_path, os.environ))
    (fault,) = (verdict.line for verdict in booted.verdicts if verdict.check.name == check and not verdict.passed)
    assert fault.startswith(f"{check}: ")
    assert reason in fault


@pytest.mark.parametrize("name", SETS)
def test_a_node_with_docker_comes_up(images: Callable[[str], Image], tmp_path: Path, name: str) -> None:
    booted = boot_image(images(name), Runner(tmp_path, os.environ))
    assert booted.faults == []
    checks = {verdict.check.name for verdict in booted.verdicts}
    assert {"docker", "cri-dockerd"} & checks == {"docker", name} & {"docker", "cri-dockerd"}


def test_user_data_must_name_the_sandbox_image(images: Callable[[str], Image], tmp_path: Path) -> None:
    """kubeadm up to 1.23 writes its own, and kubelet takes the last."""

    def plain(join: Join) -> UserData:
        return make_user_data(dataclasses.replace(join, kubelet_arguments={}))

    image = images("dockershim")
    pause = "registry.example.com/pause:3.9"
    assert image.docker is not None
    other = dataclasses.replace(image, docker=dataclasses.replace(image.docker, sandbox_image=pause))
    (fault,) = boot_image(other, Runner(tmp_path, os.environ), plain).faults
    assert fault == f"docker: kubelet starts pods with registry.k8s.io/pause:3.6, expected {pause}"


def test_cluster_apis_own_user_data_joins_by_docker(images: Callable[[str], Image], tmp_path: Path) -> None:
    for name, data in (("cri-dockerd", "cri-dockerd"), ("dockershim", "docker")):
        booted = boot_image(images(name), Runner(tmp_path / name, os.environ), make_cluster_data(data))
        assert booted.faults == []


def test_with_the_socket_of_containerd_a_node_does_not_join(images: Callable[[str], Image], tmp_path: Path) -> None:
    def make_data(join: Join) -> UserData:
        return make_user_data(dataclasses.replace(join, socket=f"{PIPE}containerd-containerd"))

    (fault, *_) = boot_image(images("cri-dockerd"), Runner(tmp_path, os.environ), make_data).faults
    assert "container runtime is not running" in fault
