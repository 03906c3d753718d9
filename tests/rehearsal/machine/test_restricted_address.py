"""Who can use the address that only some accounts of a node may use, from the config to the firewall of the node."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base import contents
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.rehearsal.machine.accounts import Accounts
from imagegen.rehearsal.machine.firewall import Firewall, Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.restricted_address import FILE, restrict_address
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.rehearsal.releases import PackageRelease, product_releases
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine import Machine
    from imagegen.steps.evaluate import EvaluatedStep

STEPS = load_steps(contents.SHIPPED.step_roots)
ADDRESS = "168.63.129.16"
FIRST_BOOT = contents.PACKER.parent / "ansible-win/roles/cloudbase-init/files/first-boot.ps1"


def steps_of(kubernetes: str, cloud: str, **settings: object) -> tuple[EvaluatedStep, ...]:
    gallery = {"resource_group": "images", "name": "images", "definition": "windows"}
    clouds: dict[str, Any] = {"aws": {"region": "us-east-1"}, "azure": {"location": "eastus2", "gallery": gallery}}
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2022"},
            "kubernetes": {"version": kubernetes},
            "runtime": {"containerd": {"version": "2.3.4"}},
            "targets": {cloud: {**clouds[cloud], **settings}},
        }
    )
    return evaluate_steps(settle(config, Document("config.yaml", {}, {}), cloud), STEPS)


def data_of(kubernetes: str = "1.36.4", cloud: str = "azure", **settings: object) -> bytes | None:
    """The file that the image has for first boot. None if it has none."""
    sources = [
        (step.texts, draft.fields["source"])
        for step in steps_of(kubernetes, cloud, **settings)
        for draft in step.drafts
        if draft.kind == "file" and draft.fields["path"] == FILE
    ]
    return next((texts[source] for texts, source in sources), None)


def node(root: Path, data: bytes | None) -> Machine:
    """A machine of an image with this file, which Windows has given its own SID."""
    machine = stock_windows(root, release="2022", cloud="azure")
    for name in ("cloudbase-init", "monitoring", "someone"):
        machine.accounts.add_user(name, "secret")
    machine.accounts.add_member("Administrators", "cloudbase-init")
    if data is not None:
        machine.files.make_folder(FILE.rpartition("\\")[0])
        machine.files.write(FILE, data)
    machine.accounts.generalised()
    return machine


def blocked(machine: Machine, port: int = 80, address: str = ADDRESS) -> list[str]:
    names = ("SYSTEM", "cloudbase-init", "monitoring", "someone", "packer")
    return [name for name in names if machine.firewall.blocks(machine.accounts.token(name), address, port)]


@pytest.mark.parametrize(
    ("kubernetes", "users", "members"),
    [
        # cloudbase-init runs as SYSTEM, or as an administrator of its own.
        ("1.31.0", [], []),
        ("1.30.14", [], ["cloudbase-init"]),
        ("1.30.14", ["monitoring"], ["cloudbase-init", "monitoring"]),
        ("1.36.4", ["monitoring", "a b"], ["monitoring", "a b"]),
    ],
)
def test_first_boot_is_told_the_address_and_the_accounts(kubernetes: str, users: list[str], members: list[str]) -> None:
    data = data_of(kubernetes, wire_server_users=users)
    assert data is not None
    assert json.loads(data) == {
        "address": ADDRESS,
        "ports": ["80", "32526"],
        "rule": "block-wireserver",
        "group": "WireServerAccess",
        "members": members,
    }


@pytest.mark.parametrize("kubernetes", ["1.30.14", "1.31.0"])
def test_the_installer_makes_the_account_that_first_boot_adds(kubernetes: str) -> None:
    [package] = [
        draft.fields for step in steps_of(kubernetes, "azure") for draft in step.drafts if draft.kind == "package"
    ]
    (release,) = product_releases("cloudbase-init")
    assert isinstance(release, PackageRelease)
    [service] = release.services
    account = service.account(dict(argument.split("=", 1) for argument in package["arguments"]))
    assert json.loads(data_of(kubernetes) or b"")["members"] == ([account] if account else [])


def test_another_cloud_restricts_no_address(tmp_path: Path) -> None:
    assert data_of(cloud="aws") is None
    machine = node(tmp_path, None)
    before = machine.firewall.rules
    assert (list(restrict_address(machine)), blocked(machine), machine.firewall.rules) == ([], [], before)


@pytest.mark.parametrize("port", [80, 32526])
@pytest.mark.parametrize(
    ("kubernetes", "users", "others"),
    [
        ("1.36.4", [], ["cloudbase-init", "monitoring", "someone", "packer"]),
        ("1.30.14", [], ["monitoring", "someone", "packer"]),
        ("1.30.14", ["Monitoring"], ["someone", "packer"]),
    ],
)
def test_only_system_and_the_group_can_use_the_address(
    tmp_path: Path, kubernetes: str, users: list[str], others: list[str], port: int
) -> None:
    """An administrator is no exception: a container's administrator counts as one."""
    machine = node(tmp_path, data_of(kubernetes, wire_server_users=users))
    assert blocked(machine, port) == []
    assert list(restrict_address(machine)) == []
    assert blocked(machine, port) == others
    # The cloud's name server and other addresses stay open.
    assert blocked(machine, 53) == blocked(machine, port, "192.0.2.1") == []


def test_an_account_that_does_not_exist_keeps_nobody_else_out(tmp_path: Path) -> None:
    machine = node(tmp_path, data_of(wire_server_users=["nobody", "monitoring"]))
    assert list(restrict_address(machine)) == [
        "account nobody could not be added to group WireServerAccess: it does not exist"
    ]
    assert blocked(machine) == ["cloudbase-init", "someone", "packer"]


def test_a_rule_from_before_sysprep_would_lock_the_members_out(tmp_path: Path) -> None:
    """It names the group by a SID that no longer exists. A node that is sealed again gets a new rule at first boot."""
    machine = node(tmp_path, data_of("1.30.14"))
    list(restrict_address(machine))
    group = machine.accounts.need_group("WireServerAccess")
    before = group.sid
    machine.accounts.generalised()
    assert group.sid != before
    assert group.sid.rpartition("-")[2] == before.rpartition("-")[2]
    assert "cloudbase-init" in blocked(machine)
    assert list(restrict_address(machine)) == []
    assert "cloudbase-init" not in blocked(machine)
    assert "someone" in blocked(machine)
    assert machine.accounts.add_user("another", "secret").number > int(group.sid.rpartition("-")[2])


def test_without_the_firewall_there_is_no_rule(tmp_path: Path) -> None:
    machine = node(tmp_path, data_of())
    machine.services.stop("mpssvc")
    with pytest.raises(RefusedByWindows, match="mpssvc"):
        list(restrict_address(machine))


@pytest.mark.parametrize(
    ("change", "is_blocked"),
    [
        ({}, True),
        ({"direction": "in"}, False),
        ({"action": "allow"}, False),
        ({"protocol": "UDP"}, False),
        ({"enabled": False}, False),
        ({"port": "8080"}, False),
        ({"port": "Any"}, True),
        ({"remote_address": "192.0.2.1"}, False),
        ({"remote_address": "Any"}, True),
        ({"local_user": "Any"}, True),
        ({"local_user": "O:LSD:(A;;CC;;;S-1-1-0)"}, True),
        ({"local_user": "O:LSD:(A;;CC;;;S-1-5-32-545)"}, False),
        ({"local_user": "O:LSD:(D;;CC;;;S-1-5-18)(A;;CC;;;S-1-1-0)"}, False),
        ({"local_user": "O:LSD:(A;;CC;;;S-1-1-0)(D;;CC;;;S-1-5-18)"}, True),
    ],
)
def test_what_a_rule_blocks(change: dict[str, Any], *, is_blocked: bool) -> None:
    firewall = Firewall()
    fields = {"name": "a", "display_name": "A", "direction": "out", "action": "block", "protocol": "TCP", "port": "80"}
    firewall.add(Rule(**{**fields, "remote_address": ADDRESS, **change}))
    assert firewall.blocks(Accounts().token("SYSTEM"), ADDRESS, 80) is is_blocked


@pytest.mark.parametrize(
    "text", ["", "Everyone", "D:(A;;CC;;;WD)", "O:LSD:", "O:LSD:(A;;CC;;;S-1-1-0)(A;;GA;;;S-1-1-0)"]
)
def test_a_condition_that_the_model_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(RefusedByWindows, match="unknown condition"):
        Firewall().add(Rule("a", "A", "out", "block", "TCP", "80", local_user=text))


def test_the_script_makes_the_models_rule(tmp_path: Path) -> None:
    script = FIRST_BOOT.read_text("ascii")
    body = script.partition("\nfunction Limit-Address {")[2].partition("\n}\n")[0]
    machine = node(tmp_path, data_of())
    list(restrict_address(machine))
    rule = machine.firewall.rule("block-wireserver")
    assert rule
    assert f'"$PSScriptRoot\\{FILE.rpartition(chr(92))[2]}"' in script
    sid = machine.accounts.need_group("WireServerAccess").sid
    assert f'$users = "{rule.local_user.replace(sid, "$($groups[0].SID.Value)")}"' in body
    title = rule.display_name.replace("WireServerAccess", "$($wanted.group)").replace(ADDRESS, "$($wanted.address)")
    made = {
        "Name": "$wanted.rule", "DisplayName": f'"{title}"', "Enabled": "'True'", "Profile": "'Any'",
        "Direction": "'Outbound'", "Action": "'Block'", "Protocol": "'TCP'", "RemoteAddress": "$wanted.address",
        "RemotePort": "[string[]]@($wanted.ports)", "LocalUser": "$users",
    }  # fmt: skip
    assert dict(re.findall(r"(\w+) = ([^;\n]+)", body.partition("$rule = @{")[2].partition("\n    }")[0])) == made
    # The members first: a rule before them would keep cloudbase-init out.
    order = ["New-LocalGroup", "Add-LocalGroupMember", "Remove-NetFirewallRule", "New-NetFirewallRule"]
    assert re.findall("|".join(order), body) == order
    assert "{ Limit-Address -File $address }" in script
    # Windows refuses a longer one.
    description = re.search(r"New-LocalGroup [^\n]*-Description '([^']*)'", body)
    assert description
    assert len(description[1]) <= 48
