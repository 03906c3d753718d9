"""Hyper-V as the steps install it where the processor shows no virtualization, and what each resource is for."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import SHIPPED
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.plan.resolve import cut_phases
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.machine.kinds import BEHAVIOUR
from imagegen.rehearsal.machine.kinds.kind import Supplies
from imagegen.settle.spec import settle
from imagegen.steps.kinds import KINDS
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine
    from imagegen.steps.evaluate import EvaluatedStep
    from imagegen.steps.resource import Resource

STEPS = load_steps(SHIPPED.step_roots)
SUPPLIES = Supplies(timeout_s=60)
NAMES = ("command:hyper-v", "command:hypervisor", "feature:Hyper-V-PowerShell")
BUILDS = (17763, 18362, 18363, 19041, 19042, 20348)
CONTAINERD: dict[str, Any] = {"containerd": {"version": "2.3.4"}}
DOCKER: dict[str, Any] = {"docker": {"version": "20.10.9"}}


def steps(level: str, kubernetes: str = "1.36.4", runtime: dict[str, Any] = CONTAINERD) -> dict[str, EvaluatedStep]:
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2022", "hyper_v": level},
            "kubernetes": {"version": kubernetes},
            "runtime": runtime,
            "targets": {"aws": {"region": "us-east-1"}},
        }
    )
    found = evaluate_steps(settle(config, Document("config.yaml", {}, {}), "aws"), STEPS)
    return {item.step.name: item for item in found}


def resources(level: str) -> dict[str, Resource]:
    made = [KINDS[draft.kind].model_validate(draft.fields) for draft in steps(level)["system"].drafts]
    return {name: one for one in made if (name := f"{one.kind}:{one.label}") in NAMES}


def install(root: Path, level: str, without: str = "") -> Machine:
    machine = stock_windows(root, release="2022", cloud="aws")
    machine.features.nests = False
    for name, resource in resources(level).items():
        if name != without:
            BEHAVIOUR[resource.kind].put(machine, resource, SUPPLIES)
    machine.restart()
    return machine


def look(machine: Machine) -> tuple[bool, bool, bool]:
    machine.features.nests = True
    has_commands = machine.features.is_installed("Hyper-V-PowerShell")
    return machine.services.is_running("vmms"), has_commands, machine.runs_hypervisor


# What a node has: the service, the commands, the hypervisor.
@pytest.mark.parametrize(
    ("level", "without", "has"),
    [
        ("tools", "", (True, True, False)),
        ("tools", NAMES[0], (False, True, False)),
        ("tools", NAMES[1], (True, True, True)),
        ("tools", NAMES[2], (True, False, False)),
        ("isolation", "", (True, True, True)),
        ("isolation", NAMES[2], (True, False, True)),
    ],
)
def test_what_each_resource_brings(tmp_path: Path, level: str, without: str, has: tuple[bool, ...]) -> None:
    assert look(install(tmp_path, level, without)) == has


def test_the_hypervisor_comes_back_where_a_base_image_has_it_off(tmp_path: Path) -> None:
    machine = stock_windows(tmp_path, release="2022", cloud="aws")
    machine.optional_features.enable("Microsoft-Hyper-V")
    machine.optional_features.disable("Microsoft-Hyper-V-Online")
    machine.restart()
    resource = resources("isolation")[NAMES[1]]
    BEHAVIOUR[resource.kind].put(machine, resource, SUPPLIES)
    machine.restart()
    assert look(machine) == (True, False, True)


def test_nothing_is_installed_unless_it_is_wanted() -> None:
    assert resources("none") == {}
    assert tuple(resources("tools")) == tuple(resources("isolation")) == NAMES


def test_one_restart_serves_containers_and_hyper_v() -> None:
    system = steps("isolation")["system"]
    typed = [(draft, KINDS[draft.kind].model_validate(draft.fields)) for draft in system.drafts]
    first, last = cut_phases([(system, typed)])
    assert [f"{one.resource.kind}:{one.resource.label}" for one in first[-4:]] == ["feature:Containers", *NAMES]
    assert last == []


SCHEMAS = {"1.7.29": "io.containerd.grpc.v1.cri", "2.3.4": "io.containerd.cri.v1.runtime"}


@pytest.mark.parametrize("version", SCHEMAS)
def test_containerd_has_a_handler_for_each_build(version: str) -> None:
    step = steps("isolation", "1.34.9", {"containerd": {"version": version}})["containerd"]
    config = tomllib.loads(step.texts["files/containerd/config.toml"].decode())
    runtimes = config["plugins"][SCHEMAS[version]]["containerd"]["runtimes"]
    name = "runhcs-wcow-hypervisor"
    assert list(runtimes) == ["runhcs-wcow-process", name, *(f"{name}-{build}" for build in BUILDS)]
    assert {row["runtime_type"] for row in runtimes.values()} == {"io.containerd.runhcs.v1"}
    assert {row.get("options", {}).get("SandboxIsolation") for row in list(runtimes.values())[1:]} == {1}
    platforms = config["plugins"].get("io.containerd.cri.v1.images", {}).get("runtime_platforms", {})
    wanted = {f"{name}-{build}": {"platform": f"windows(10.0.{build})/amd64"} for build in BUILDS}
    assert platforms == (wanted if version == "2.3.4" else {})


@pytest.mark.parametrize("version", ["1.6.39", *SCHEMAS])
@pytest.mark.parametrize("level", ["none", "tools", "isolation"])
def test_no_handler_logs_the_environment_of_containers(level: str, version: str) -> None:
    """The log is kept. The shims of containerd 1.6 have no such option."""
    step = steps(level, "1.34.9", {"containerd": {"version": version}})["containerd"]
    config = tomllib.loads(step.texts["files/containerd/config.toml"].decode())
    schema = SCHEMAS.get(version, "io.containerd.grpc.v1.cri")
    runtimes = config["plugins"][schema].get("containerd", {}).get("runtimes", {})
    scrubs = [row.get("options", {}).get("ScrubLogs") for row in runtimes.values()]
    own = 1 + len(BUILDS) if level == "isolation" else 0
    assert scrubs == ([None] * (own and own + 1) if version == "1.6.39" else [True] * (own + 1))


@pytest.mark.parametrize("level", ["none", "tools"])
def test_without_isolation_containerd_has_its_own_handlers(level: str) -> None:
    config = tomllib.loads(steps(level)["containerd"].texts["files/containerd/config.toml"].decode())
    assert list(config["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]) == ["runhcs-wcow-process"]


@pytest.mark.parametrize(
    ("level", "kubernetes", "runtime", "has_gate"),
    [
        ("isolation", "1.20.15", DOCKER, True),
        ("isolation", "1.21.14", DOCKER, False),
        ("tools", "1.20.15", DOCKER, False),
        ("isolation", "1.20.15", {"containerd": {"version": "1.6.36"}}, False),
    ],
)
def test_kubelet_has_the_gate_only_with_docker(
    level: str, kubernetes: str, runtime: dict[str, Any], *, has_gate: bool
) -> None:
    step = steps(level, kubernetes, runtime)["kubernetes"]
    text = step.texts.get("files/kubernetes/kubelet-arguments.txt", b"").decode()
    assert ("--feature-gates=HyperVContainer=true\n" in text) is has_gate
