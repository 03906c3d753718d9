"""Docker and cri-dockerd on the model machine: what keeps each from answering, and what the model refuses by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen.catalog.docker import Client
from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.machine.commands import run_program
from imagegen.rehearsal.machine.docker_engine import cri_dockerd_fault, docker_fault
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.rehearsal.machine.tasks import Task

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine

FOLDER, SETTINGS = r"C:\Program Files\docker", r"C:\ProgramData\docker\config\daemon.json"
CMD = r"C:\Windows\System32\cmd.exe"
SHOW = rf'/d /c sc.exe query docker & "{FOLDER}\dockerd.exe" --version & exit 0'
STOP = "/d /c net.exe stop docker /y"
NETWORK = rf'/d /s /c ""{FOLDER}\docker.exe" network inspect host || "{FOLDER}\docker.exe" network create -d nat host"'
PARAMETERS = r"HKLM:\SYSTEM\CurrentControlSet\Services\cri-dockerd\Parameters"


def stand_in(name: str, version: str) -> bytes:
    return f"MZ a stand-in for {name} {version}, made for a rehearsal\n".encode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """With Docker 29.0.4 and cri-dockerd 0.3.20."""
    machine = stock_windows(tmp_path, release="2022", cloud="aws")
    machine.features.install("Containers")
    machine.restart()
    for folder in (FOLDER, r"C:\ProgramData\docker\config", r"C:\cri", r"C:\logs"):
        machine.files.make_folder(folder)
    machine.files.write(rf"{FOLDER}\dockerd.exe", stand_in("docker/dockerd.exe", "29.0.4"))
    machine.files.write(rf"{FOLDER}\docker.exe", b"MZ")
    machine.files.write(r"C:\cri\nssm.exe", b"MZ")
    machine.files.write(r"C:\cri\cri-dockerd.exe", stand_in("cri-dockerd/cri-dockerd.exe", "0.3.20"))
    machine.services.create("docker", rf'"{FOLDER}\dockerd.exe" --run-service', "Docker Engine", AUTOMATIC)
    machine.services.create("cri-dockerd", r"C:\cri\nssm.exe", "cri-dockerd", AUTOMATIC, depends_on=["docker"])
    machine.registry.make_key(PARAMETERS)
    for name, data in (("Application", r"C:\cri\cri-dockerd.exe"), ("AppStdout", r"C:\logs\cri-dockerd.log")):
        machine.registry.write(PARAMETERS, name, Value("ExpandString", data))
    return machine


def configure(machine: Machine, text: str) -> None:
    machine.files.write(SETTINGS, text.encode())


@pytest.mark.parametrize(
    "text",
    ["{}", '{"hosts": ["npipe://"], "min-api-version": "1.24"}', '{"log-opts": {"max-size": "1m"}, "debug": true}'],
)
def test_docker_starts_with_its_settings(machine: Machine, text: str) -> None:
    configure(machine, text)
    machine.services.start("docker")
    assert docker_fault(machine) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unable to configure the Docker daemon"),
        ("\ufeff{}", "unable to configure the Docker daemon"),
        ("[]", "it has no settings"),
        ('{"host": []}', "don't match any configuration option: host"),
        ('{"hosts": "npipe://"}', "hosts has another type"),
        ('{"log-opts": ["max-size"]}', "log-opts has another type"),
        ('{"min-api-version": "2"}', "min-api-version has another type"),
    ],
)
def test_docker_does_not_start_with_settings_that_it_cannot_read(machine: Machine, text: str, why: str) -> None:
    configure(machine, text)
    with pytest.raises(RefusedByWindows, match="service docker cannot be started") as refused:
        machine.services.start("docker")
    assert why in str(refused.value)
    assert docker_fault(machine) == "service docker does not run"


def test_an_older_docker_cannot_lower_its_api(machine: Machine) -> None:
    machine.files.write(rf"{FOLDER}\dockerd.exe", stand_in("docker/dockerd.exe", "28.5.1"))
    configure(machine, '{"min-api-version": "1.24"}')
    with pytest.raises(RefusedByWindows, match="don't match any configuration option: min-api-version"):
        machine.services.start("docker")


def test_docker_needs_the_feature(tmp_path: Path) -> None:
    fresh = stock_windows(tmp_path, release="2022", cloud="aws")
    fresh.files.make_folder(FOLDER)
    fresh.files.write(rf"{FOLDER}\dockerd.exe", stand_in("docker/dockerd.exe", "29.0.4"))
    fresh.services.create("docker", rf'"{FOLDER}\dockerd.exe" --run-service', "Docker Engine", AUTOMATIC)
    with pytest.raises(RefusedByWindows, match="feature Containers is not Installed"):
        fresh.services.start("docker")


@pytest.mark.parametrize(
    ("api", "least", "fault"),
    [
        ("1.44", "", ""),
        ("1.52", "", ""),
        ("1.43", "", "client version 1.43 is too old. Minimum supported API version is 1.44"),
        ("1.43", "1.43", ""),
        ("1.42", "1.43", "client version 1.42 is too old. Minimum supported API version is 1.43"),
        ("1.53", "1.24", "client version 1.53 is too new. Maximum supported API version is 1.52"),
    ],
)
def test_docker_answers_versions_of_its_api(machine: Machine, api: str, least: str, fault: str) -> None:
    configure(machine, json.dumps({"min-api-version": least} if least else {}))
    machine.services.configure(
        "docker", "ImagePath", Value("String", rf'"{FOLDER}\dockerd.exe" --run-service --config-file "{SETTINGS}"')
    )
    machine.services.start("docker")
    found = docker_fault(machine, Client("a client", api))
    assert found.removeprefix("Error response from daemon: ") == fault


def test_an_unknown_docker_is_refused_by_name(machine: Machine) -> None:
    machine.files.write(rf"{FOLDER}\dockerd.exe", stand_in("docker/dockerd.exe", "31.0.0"))
    machine.services.start("docker")
    with pytest.raises(UnknownCommandError, match=r"no Docker 31\.0\.0"):
        docker_fault(machine, Client("a client", "1.44"))


@pytest.mark.parametrize("flag", ["--hairpin-mode=none", "network-plugin=cni", "--network-plugin"])
def test_an_unknown_flag_of_cri_dockerd_is_refused_by_name(machine: Machine, flag: str) -> None:
    machine.services.start("cri-dockerd")
    assert cri_dockerd_fault(machine) == ""
    machine.registry.write(PARAMETERS, "AppParameters", Value("ExpandString", flag))
    with pytest.raises(UnknownCommandError, match=f"cri-dockerd {flag}"):
        cri_dockerd_fault(machine)


def test_an_unknown_cri_dockerd_is_refused_by_name(machine: Machine) -> None:
    machine.files.write(r"C:\cri\cri-dockerd.exe", stand_in("cri-dockerd/cri-dockerd.exe", "0.1.0"))
    machine.services.start("cri-dockerd")
    with pytest.raises(UnknownCommandError, match=r"no cri-dockerd 0\.1\.0"):
        cri_dockerd_fault(machine)


def test_the_state_and_the_version_of_docker_show(machine: Machine) -> None:
    code, output = run_program(machine, CMD, SHOW)
    assert (code, "STATE : 1  STOPPED" in output, "Docker version 29.0.4, build" in output) == (0, True, True)
    machine.services.start("cri-dockerd")
    assert "STATE : 4  RUNNING" in run_program(machine, CMD, SHOW)[1]
    assert run_program(machine, CMD, STOP)[0] == 0
    # And what depends on it.
    assert not machine.services.is_running("cri-dockerd")
    machine.services.remove("docker")
    machine.files.remove(rf"{FOLDER}\dockerd.exe")
    code, output = run_program(machine, CMD, SHOW)
    assert (code, "1060" in output, "version" in output) == (0, True, False)
    assert run_program(machine, CMD, STOP)[0] == 1


@pytest.mark.parametrize("line", ["/c echo 1", STOP.replace("/y", ""), NETWORK.replace("host", "other", 1)])
def test_another_command_line_is_refused_by_name(machine: Machine, line: str) -> None:
    with pytest.raises(RefusedByWindows, match="the rehearsal does not know"):
        run_program(machine, CMD, line)


def test_a_task_makes_the_network_once_docker_runs(machine: Machine) -> None:
    machine.tasks.register(machine, Task("network", CMD, NETWORK, 60, 60))
    machine.wait_until(lambda: False, 61)
    assert (machine.tasks.results["network"], {*machine.hns.networks}) == (1, set())
    machine.services.start("docker")
    machine.wait_until(lambda: False, 60)
    assert (machine.tasks.results["network"], {*machine.hns.networks}) == (0, {"host"})
    # A restart does not lose it.
    machine.restart()
    assert {*machine.hns.networks} == {"host"}
    machine.files.remove(rf"{FOLDER}\docker.exe")
    machine.wait_until(lambda: False, 61)
    assert machine.tasks.results["network"] == 1
