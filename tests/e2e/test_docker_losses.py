"""What a node with Docker loses without each resource of the step: the build fails, or the node is another one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.files import write_tree
from imagegen.boot.guarded import find_open, list_guarded
from imagegen.catalog.facts import paths
from imagegen.rehearsal import expected as tree_of
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.boot.docker import NETWORK_S, describe_docker, look_at_docker, look_at_pods
from imagegen.rehearsal.boot.observe import list_access
from imagegen.rehearsal.boot.windows_settings import describe_wanted, look_at_windows
from imagegen.rehearsal.machine import run_entry, stock_windows
from imagegen.rehearsal.machine.windows import ENVIRONMENT
from tests.conftest import REPOSITORY, load_today, make_test_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from imagegen.plan.loading import Loaded
    from imagegen.plan.resolve import Decision
    from imagegen.plan.target import PreparedTarget
    from imagegen.rehearsal.machine import Machine, Outcome

pytestmark = pytest.mark.e2e

DOCKER, CRI, LOGS = r"C:\Program Files\docker", r"C:\Program Files\cri-dockerd", r"C:\var\log\cri-dockerd"
DATA = r"C:\ProgramData\docker"
EVENTS = r"HKLM:\SYSTEM\CurrentControlSet\Services\EventLog\Application\docker"
NSSM = r"HKLM:\SYSTEM\CurrentControlSet\Services\cri-dockerd\Parameters"
# An older Docker that a base image brought.
OLDER = b"MZ a stand-in for docker/dockerd.exe 19.03.5, made for a rehearsal\n"


@functools.cache
def _config() -> Loaded:
    return load_today(REPOSITORY / "tests" / "data" / "docker.yaml")


@functools.cache
def _decided() -> tuple[PreparedTarget, Decision]:
    prepared = pipeline.prepare_target(_config(), "aws")
    return prepared, pipeline.decide(prepared, make_test_lock(_config(), "aws"))


def _without(decision: Decision, label: str) -> Decision:
    phases = tuple(
        dataclasses.replace(
            phase,
            steps=tuple(
                dataclasses.replace(step, resources=tuple(one for one in step.resources if one.id != f"docker/{label}"))
                for step in phase.steps
            ),
        )
        for phase in decision.plan.image.phases
    )
    plan = dataclasses.replace(decision.plan, image=dataclasses.replace(decision.plan.image, phases=phases))
    return dataclasses.replace(decision, plan=plan)


def labels() -> list[str]:
    plan = _decided()[1].plan
    ids = [one.id for phase in plan.image.phases for step in phase.steps for one in step.resources]
    return [name.removeprefix("docker/") for name in ids if name.startswith("docker/")]


def bring_older(machine: Machine) -> None:
    """The base image has an older Docker, which runs."""
    machine.files.make_folder(DOCKER)
    machine.files.write(rf"{DOCKER}\dockerd.exe", OLDER)
    machine.features.install("Containers")
    machine.restart()
    machine.services.create("docker", rf'"{DOCKER}\dockerd.exe" --run-service', "Docker Engine", 2)
    machine.services.start("docker")


class Interrupted(BaseException):
    """The engine was killed."""


def _run(machine: Machine, arguments: Sequence[str], artifacts: Mapping[str, bytes]) -> Outcome:
    """Run a phase, and again after each interruption."""
    while True:
        with contextlib.suppress(Interrupted):
            return run_entry(machine, arguments, lambda url, *_: artifacts[url])


def build(
    root: Path, label: str = "", *, older: bool = False, interrupt: Callable[[str], None] = lambda _: None
) -> tuple[Machine, str]:
    """The machine, and the end of a build that failed. `interrupt` is called before each resource is set."""
    prepared, decision = _decided()
    artifacts = make_artifacts(prepared.steps)
    write_tree(pipeline.render_tree(_without(decision, label) if label else decision), root / "tree")
    expected = tree_of.expected_from_tree(root / "tree")
    machine = stock_windows(root / "disk", release="2022", cloud="aws")
    if older:
        bring_older(machine)
    machine.files.write(tree_of.BUNDLE_PATH, expected.bundle)
    machine.before_set = interrupt
    for phase in expected.phases:
        outcome = _run(machine, phase.arguments, artifacts)
        if outcome.exit_code not in (0, 3010):
            return machine, outcome.output.splitlines()[-1]
        if phase.restart:
            machine.restart()
    again = _run(machine, expected.phases[-1].arguments, artifacts)
    assert (again.exit_code, '"status": "changed"' in again.output) == (0, False)
    machine.restart()
    machine.wait_until(lambda: "host" in machine.hns.networks, NETWORK_S)
    return machine, ""


def look(machine: Machine) -> dict[str, Any]:
    """What a booted node would show, and what Windows and nssm do for it."""
    spec, layout = _config().specs["aws"], paths()
    wanted = describe_docker(spec)
    docker, pods = look_at_docker(machine, wanted), look_at_pods(machine, wanted, (), layout)
    assert docker is not None
    assert pods is not None
    guarded = list_guarded(layout)
    values = {name: value.data for name, value in machine.registry.values(NSSM).items()}
    return {
        **{f"docker.{name}": value for name, value in docker.model_dump().items()},
        **{f"pods.{name}": value for name, value in pods.model_dump().items()},
        "scanned": look_at_windows(machine, describe_wanted(spec), layout).scanned,
        "open": tuple(dict.fromkeys(access.path for _, access in find_open(guarded, list_access(machine, guarded)))),
        "on PATH": DOCKER in (machine.registry.text(ENVIRONMENT, "Path") or "").split(";"),
        "CNI folders": tuple(machine.files.is_folder(layout[name]) for name in ("cni_bin", "cni_config")),
        "events": {name: value.data for name, value in machine.registry.values(EVENTS).items()},
        "rotates": tuple(values.get(f"AppRotate{name}") for name in ("Files", "Online", "Bytes")),
        "restarts after": values.get("AppRestartDelay"),
        "console": values.get("AppNoConsole") != 1,
        "starts in": values.get("AppDirectory"),
        "logs": (values.get("AppStdout"), values.get("AppStderr")),
        "recovery": tuple(machine.services.failure_actions(name) is not None for name in ("docker", "cri-dockerd")),
    }


LOG = rf"{LOGS}\cri-dockerd.log"
UNSTARTED = "nssm.exe cannot start a program without a name"
# By the resource: how the build ends without it, or what the node then has.
LOSSES: dict[str, str | dict[str, Any]] = {
    rf"directory:{DATA}": rf"there is no {DATA}",
    rf"acl:{DATA}": {"open": (DATA, rf"{DATA}\config", rf"{DATA}\config\daemon.json")},
    rf"directory:{DATA}\config": "there is no folder",
    rf"directory:{DOCKER}": "there is no folder",
    "archive:docker": "cannot find its program",
    rf"path:{DOCKER}": {"on PATH": False},
    rf"file:{DATA}\config\daemon.json": "unable to configure the Docker daemon with file",
    r"directory:C:\opt\cni\bin": r"resource docker/acl:C:\opt\cni\bin: there is no C:\opt\cni\bin",
    r"directory:C:\etc\cni\net.d": r"resource docker/acl:C:\etc\cni\net.d: there is no C:\etc\cni\net.d",
    rf"defender:{DOCKER}\dockerd.exe": {"scanned": (rf"{DOCKER}\dockerd.exe",)},
    rf"registry:{EVENTS}\EventMessageFile": {"docker.keeps_log": False, "events": {"TypesSupported": 7}},
    rf"registry:{EVENTS}\TypesSupported": {"events": {"EventMessageFile": rf"{DOCKER}\dockerd.exe"}},
    "service:docker": "depends on docker, which does not exist",
    rf"directory:{CRI}": "there is no folder",
    rf"extract:{CRI}\cri-dockerd.exe": {"pods.failure": rf"nssm.exe cannot start {CRI}\cri-dockerd.exe"},
    rf"extract:{CRI}\nssm.exe": "cannot find its program",
    rf"directory:{LOGS}": f"there is no {LOGS}",
    rf"registry:{NSSM}\Application": {"pods.failure": UNSTARTED},
    rf"registry:{NSSM}\AppDirectory": {"starts in": None},
    rf"registry:{NSSM}\AppParameters": {
        "pods.folders": ("C:\\k\\cni\\bin\\", r"C:\k\cni\config"),
        "pods.sandbox_image": "registry.k8s.io/pause:3.10",
    },
    rf"registry:{NSSM}\AppStdout": {"logs": (None, LOG), "pods.failure": "nssm.exe cannot open its log "},
    rf"registry:{NSSM}\AppStderr": {"logs": (LOG, None)},
    rf"registry:{NSSM}\AppRotateFiles": {"rotates": (None, 1, 104857600)},
    rf"registry:{NSSM}\AppRotateOnline": {"rotates": (1, None, 104857600)},
    rf"registry:{NSSM}\AppRotateBytes": {"rotates": (1, 1, None)},
    rf"registry:{NSSM}\AppRestartDelay": {"restarts after": None},
    rf"registry:{NSSM}\AppNoConsole": {"console": True},
    "service:cri-dockerd": {
        "pods.failure": "it is not in the image",
        "pods.endpoint": "",
        "pods.plugin": "",
        "pods.folders": ("", ""),
        "pods.sandbox_image": "",
        "recovery": (True, False),
    },
    "task:imagegen-host-network": {"docker.lacks_network": True},
}
STOPS_OTHER = "command:stop-other-docker"
# The folders above are closed too: tests/e2e/test_open_folders.py has a base image that brings these open.
CLOSED_ABOVE = {r"acl:C:\opt\cni\bin", r"acl:C:\etc\cni\net.d", rf"acl:{LOGS}"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    machine, failure = build(tmp_path_factory.mktemp("whole"))
    assert failure == ""
    return look(machine)


@pytest.mark.parametrize("label", LOSSES)
def test_a_node_loses_something_without_each_resource(whole: dict[str, Any], tmp_path: Path, label: str) -> None:
    machine, failure = build(tmp_path, label)
    loss = LOSSES[label]
    if isinstance(loss, str):
        assert loss in failure
    else:
        assert failure == ""
        assert look(machine) == whole | loss


@pytest.mark.parametrize("label", sorted(CLOSED_ABOVE))
def test_the_folders_above_close_a_folder_that_the_build_makes(
    whole: dict[str, Any], tmp_path: Path, label: str
) -> None:
    machine, failure = build(tmp_path, label)
    assert failure == ""
    assert look(machine) == whole


def test_every_resource_has_its_loss() -> None:
    assert {*labels()} == {*LOSSES, *CLOSED_ABOVE, STOPS_OTHER}


def test_a_node_has_what_is_wanted(whole: dict[str, Any]) -> None:
    assert (whole["docker.failure"], whole["pods.failure"], whole["open"], whole["scanned"]) == ("", "", (), ())
    assert (whole["docker.version"], whole["docker.lacks_network"]) == ("29.0.4", False)
    assert whole["pods.folders"] == whole["pods.wanted_folders"]
    assert whole["pods.sandbox_image"] == whole["pods.wanted_sandbox_image"]


def test_a_build_that_is_interrupted_before_each_resource_resumes(whole: dict[str, Any], tmp_path: Path) -> None:
    seen: set[str] = set()

    def interrupt(name: str) -> None:
        if name not in seen:
            seen.add(name)
            raise Interrupted

    machine, failure = build(tmp_path, older=True, interrupt=interrupt)
    assert failure == ""
    assert {name.removeprefix("docker/") for name in seen if name.startswith("docker/")} >= {
        *LOSSES,
        *CLOSED_ABOVE,
        STOPS_OTHER,
    } - {
        # The older Docker brought its folder.
        rf"directory:{DOCKER}"
    }
    assert look(machine) == whole


def test_an_older_docker_of_the_base_image_is_replaced(whole: dict[str, Any], tmp_path: Path) -> None:
    machine, failure = build(tmp_path / "a", older=True)
    assert failure == ""
    assert look(machine) == whole
    _, failure = build(tmp_path / "b", STOPS_OTHER, older=True)
    assert "dockerd.exe is in use by service docker" in failure
