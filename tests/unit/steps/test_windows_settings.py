"""The settings of Windows that the steps make: what a node loses without each of them, on the model machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.base.contents import SHIPPED
from imagegen.boot.judge import judge
from imagegen.boot.node import FirstBoot, Given, SecondBoot
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.rehearsal.boot.view import MachineNode
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.machine.kinds import BEHAVIOUR
from imagegen.rehearsal.machine.kinds.kind import Supplies
from imagegen.settle.spec import Spec, settle
from imagegen.steps.kinds import KINDS, Command
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.steps.resource import Resource

STEPS = load_steps(SHIPPED.step_roots)
TARGETS = {
    "aws": {"region": "us-east-1"},
    "azure": {"location": "westeurope", "gallery": {"resource_group": "i", "name": "i", "definition": "windows"}},
}
SUPPLIES = Supplies(timeout_s=60)
KINDS_OF_SETTINGS = ("command", "defender", "registry", "service")
TCPIP = r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"


def make_spec(target: str, zone: str = "W. Europe Standard Time") -> Spec:
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2022", "time_zone": zone},
            "kubernetes": {"version": "1.36.4"},
            "runtime": {"containerd": {"version": "2.3.4"}},
            "host_names": {"dns_suffix": "nodes.example.com"},
            "targets": {target: TARGETS[target]},
        }
    )
    return settle(config, Document("config.yaml", {}, {}), target)


def settings(target: str) -> dict[str, Resource]:
    """The settings of Windows by the kind and label, in the order of the steps."""
    drafts = [draft for step in evaluate_steps(make_spec(target), STEPS) for draft in step.drafts]
    made = [KINDS[draft.kind].model_validate(draft.fields) for draft in drafts if draft.kind in KINDS_OF_SETTINGS]
    found = {f"{one.kind}:{one.label}": one for one in made}
    return {
        name: one
        for name, one in found.items()
        if one.kind == "command" or dict(one).get("process") or TCPIP in name or name == "service:W32Time"
    }


CHECKS = ("time-zone", "dns-suffix", "power", "time-service", "ports", "defender")
GIVEN = Given("", False, b"", (), (), False, "", ())
FIRST = FirstBoot(None, True, "", False, True, "", False, "", (), 1, "")


def apply(root: Path, target: str, without: str = "", *, restart: bool = True) -> list[str]:
    """The faults of a machine with the settings but one."""
    machine = stock_windows(root, release="2022", cloud=target)
    for name, resource in settings(target).items():
        if name != without:
            BEHAVIOUR[resource.kind].put(machine, resource, SUPPLIES)
    if restart:
        machine.restart()
    second = SecondBoot(ran_user_data=False, commands=(), changed=())
    node = MachineNode(machine, machine, make_spec(target), GIVEN, FIRST, second, {}, {})
    return [verdict.line for verdict in judge(node, CHECKS) if not verdict.passed]


SHIM = r"C:\Program Files\containerd\containerd-shim-runhcs-v1.exe"
# What a node has without a resource.
LOSSES: dict[str, str] = {
    "command:power-plan": "power: the power plan is 381b4222-f694-41f0-9685-ff5bb260df2e, not high performance",
    "command:time-service-triggers": "time-service: the time service does not run",
    "service:W32Time": "time-service: the time service does not run",
    "command:excluded-ports-tcp-30000": "ports: a program can get the ports TCP 30000 to 32767: Kubernetes' NodePorts",
    "command:excluded-ports-udp-30000": "ports: a program can get the ports UDP 30000 to 32767: Kubernetes' NodePorts",
    "command:excluded-ports-udp-65330": "ports: a program can get the ports UDP 65330: Azure drops",
    "command:dynamic-ports-tcp": "ports: programs can get 16384 tcp ports, and need ",
    "command:dynamic-ports-udp": "ports: programs can get 16383 udp ports, and need ",
    rf"registry:{TCPIP}\NV Domain": "dns-suffix: the DNS suffix is ''",
    "command:time-zone": "time-zone: the time zone is UTC",
    rf"defender:{SHIM}": f"defender: Defender scans the files that {SHIM} opens",
    r"defender:C:\Program Files\containerd\containerd.exe": (
        r"defender: Defender scans the files that C:\Program Files\containerd\containerd.exe opens"
    ),
    r"defender:C:\k\kubelet.exe": r"defender: Defender scans the files that C:\k\kubelet.exe opens",
}
AT_ONCE = rf"registry:{TCPIP}\Domain"


@pytest.mark.parametrize("name", LOSSES)
def test_a_node_loses_something_without_each_setting(tmp_path: Path, name: str) -> None:
    (fault,) = apply(tmp_path, "azure", name)
    assert fault.startswith(LOSSES[name])


def test_every_setting_has_its_loss() -> None:
    assert [*settings("azure")] != []
    assert {*settings("azure")} == {*LOSSES, AT_ONCE}
    assert {*settings("aws")} == {*LOSSES, AT_ONCE} - {"command:excluded-ports-udp-65330"}


@pytest.mark.parametrize("target", TARGETS)
def test_a_node_has_what_is_wanted(tmp_path: Path, target: str) -> None:
    assert apply(tmp_path / "restarted", target) == []
    # Programs can have a port of a range that was excluded until the next restart.
    assert [line for line in apply(tmp_path / "a", target, restart=False) if line.startswith("dns-suffix")] == []
    (lost,) = [line for line in apply(tmp_path / "b", target, AT_ONCE, restart=False) if line.startswith("dns-suffix")]
    assert lost.startswith("dns-suffix: the DNS suffix is ''")


def test_ports_are_excluded_before_programs_can_have_them(tmp_path: Path) -> None:
    """netsh excludes no port that a program has open."""
    machine = stock_windows(tmp_path, release="2022", cloud="aws")
    machine.ports.in_use["tcp"].add(16400)
    for name, resource in settings("aws").items():
        BEHAVIOUR[resource.kind].put(machine, resource, SUPPLIES)
        if name == "command:dynamic-ports-tcp":
            machine.ports.in_use["tcp"].add(30001)
    assert machine.ports.given("tcp").isdisjoint(range(30000, 32768))


EXCLUDED = "\r\nProtocole tcp Plages d'exclusion de ports\r\n\r\nPort de début  Port de fin\r\n-----  -----\r\n{}\r\n"
DYNAMIC = "\r\nDynamischer Portbereich für Protokoll tcp\r\n----\r\nStartport       : {}\r\nAnzahl von Ports: {}\r\n"
PLAN = "GUID du mode de gestion de l'alimentation : {}  (Performances élevées)"
TRIGGERS = "SERVICE_NAME: W32Time\r\n\r\n        DIENST ANHALTEN\r\n          STATUS : {} [NICHT]\r\n"


@pytest.mark.parametrize(
    ("name", "output", "is_done"),
    [
        ("excluded-ports-tcp-30000", EXCLUDED.format("     30000       32767     *"), True),
        (
            "excluded-ports-tcp-30000",
            EXCLUDED.format("     30000       30000     *\r\n     32767       32767     *"),
            False,
        ),
        ("excluded-ports-tcp-30000", EXCLUDED.format("     30000       32766     *"), False),
        ("excluded-ports-tcp-30000", EXCLUDED.format("      3000        2767     *"), False),
        ("excluded-ports-tcp-30000", EXCLUDED.format(""), False),
        ("excluded-ports-udp-65330", EXCLUDED.format("     65330       65330     *"), True),
        ("excluded-ports-udp-65330", EXCLUDED.format("     65329       65330     *"), False),
        ("dynamic-ports-tcp", DYNAMIC.format(16385, 49151), True),
        ("dynamic-ports-tcp", DYNAMIC.format(49151, 16385), False),
        ("dynamic-ports-tcp", DYNAMIC.format(49152, 16384), False),
        ("dynamic-ports-tcp", DYNAMIC.format(16385, 4915), False),
        ("power-plan", PLAN.format("8C5E7FDA-E8BF-4A96-9A85-A6E23A8C635C"), True),
        ("power-plan", PLAN.format("381b4222-f694-41f0-9685-ff5bb260df2e"), False),
        ("time-service-triggers", TRIGGERS.format("ddaf516e-58c2-4866-9574-c3b615d42ea1"), False),
        ("time-service-triggers", TRIGGERS.format("DDAF516E-58C2-4866-9574-C3B615D42EA1"), False),
        ("time-service-triggers", TRIGGERS.format("1ce20aba-9851-4421-9430-1ddeb766e809"), True),
        ("time-service-triggers", "The service w32time has not registered for any start or stop triggers.", True),
        # Nothing was read: neither an empty output nor the engine's own words for one say that there is no trigger.
        ("time-service-triggers", "", False),
        ("time-service-triggers", "its output is still open", False),
        ("time-zone", "W. Europe Standard Time", True),
        ("time-zone", "W. Europe Standard Time_dstoff", False),
        ("time-zone", "W, Europe Standard Time", False),
    ],
)
def test_a_setting_is_read_without_words_of_a_language(name: str, output: str, *, is_done: bool) -> None:
    command = settings("azure")[f"command:{name}"]
    assert isinstance(command, Command)
    assert all(re.search(one, output) for one in command.unless.matches) is is_done
