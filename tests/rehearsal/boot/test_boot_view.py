"""The checks read a machine: the configuration of cloudbase-init, the name of the node, secrets, and a second boot."""

from __future__ import annotations

import base64
import dataclasses
import gzip
from typing import TYPE_CHECKING

import pytest

from imagegen.boot.cloudbase_init import SERVICE, Settings, read_settings, wanted_node
from imagegen.boot.guarded import Guarded
from imagegen.boot.judge import judge
from imagegen.boot.node import FirstBoot, Given, SecondBoot
from imagegen.boot.traces import find_leaks
from imagegen.rehearsal.boot.snapshot import find_changes, take_snapshot
from imagegen.rehearsal.boot.view import MachineNode
from imagegen.rehearsal.machine.access import ADMINISTRATORS, SYSTEM, USERS, AccessEntry
from imagegen.rehearsal.machine.access import write as write_access
from imagegen.rehearsal.machine.certificates import Certificate
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.windows import Machine
from tests.conftest import REPOSITORY, load_today
from tests.rehearsal.boot.conftest import put_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[Machine], object]

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
CONF = r"C:\cloudbase init\conf\cloudbase-init.conf"
MARK = "abcdef.0123456789abcdef"
SETTINGS = r"""
[DEFAULT]
plugins=a.b.MTUPlugin, a.b.UserDataPlugin,
metadata_services=x.AzureService
logdir=C:\cloudbase init\log
logfile=cloudbase-init.log
"""
GIVEN = Given("Node-Long-Name.example.com", True, b"", (), (), False, "", ())
FIRST = FirstBoot(None, True, "1.1.8", False, True, "", False, "", (), 1, "")


@pytest.fixture
def node(tmp_path: Path) -> MachineNode:
    machine = Machine(tmp_path / "disk", features={}, needing_restart=())
    full = [AccessEntry(sid, "FullControl", inherit=True) for sid in (SYSTEM, ADMINISTRATORS)]
    write_access(machine.files, "C:", [*full, AccessEntry(USERS, "ReadAndExecute", inherit=True)], protected=True)
    program = r'"C:\cloudbase init\bin\service.exe"'
    command = rf'{program} cloudbase-init "C:\cloudbase init\python.exe" --config-file "{CONF}"'
    machine.services.create(SERVICE, command, "cloudbase-init", 3)
    machine.services.configure(SERVICE, "ObjectName", Value("String", r".\cloudbase-init"))
    put_file(machine, CONF, SETTINGS.encode())
    machine.accounts.add_user("cloudbase-init", "first")
    machine.accounts.add_user("capi", "first")
    spec = load_today(BASE).specs["aws"]
    return MachineNode(machine, machine, spec, GIVEN, FIRST, SecondBoot(False, (), ()), {}, {})


def settings_with(node: MachineNode, text: str) -> Settings:
    node.machine.files.write(CONF, (SETTINGS + text).encode())
    return read_settings(node)


def test_the_configuration_is_the_one_that_the_service_reads(node: MachineNode) -> None:
    assert read_settings(node) == Settings(
        conf=CONF,
        log=r"C:\cloudbase init\log\cloudbase-init.log",
        plugins=("MTUPlugin", "UserDataPlugin"),
        services=("AzureService",),
        unreported=("metadata_report_provisioning_started", "metadata_report_provisioning_completed"),
        debug=False,
    )


@pytest.mark.parametrize("value", ["true", "True ", "1", "on", "YES", "false", "2", ""])
def test_options_are_on_as_cloudbase_init_reads_them(node: MachineNode, value: str) -> None:
    report, is_on = "metadata_report_provisioning_started", value not in ("false", "2", "")
    found = settings_with(node, f"debug=false\ndebug={value}\n{report}={value}\n")
    assert (found.debug, report not in found.unreported) == (is_on, is_on)
    assert "metadata_report_provisioning_completed" in found.unreported


@pytest.mark.parametrize("text", ["[DEFAULT", "", "logdir", "\ufeff[DEFAULT]"])
def test_a_configuration_that_cannot_be_read_says_nothing(node: MachineNode, text: str) -> None:
    node.machine.files.write(CONF, text.encode())
    assert dataclasses.replace(read_settings(node), conf="") == Settings("", "", (), (), (), debug=False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nodeRegistration:\n  name: worker-7\n", "worker-7"),
        ("nodeRegistration:\n  name: 'worker-7'\r\n", "worker-7"),
        ("  name: '{{ ds.meta_data[\"local_hostname\"] }}'\n", GIVEN.host_name),
        ("users:\n  - name: bob\n", "node-long-name"),
        ("name: top\n", "node-long-name"),
        ("", "node-long-name"),
    ],
)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_the_nodes_name_is_that_of_the_user_data(
    node: MachineNode, text: str, wanted: str, is_compressed: bool
) -> None:
    data = gzip.compress(text.encode()) if is_compressed else text.encode()
    assert wanted_node(dataclasses.replace(node, given=dataclasses.replace(GIVEN, user_data=data))) == wanted


@pytest.mark.parametrize(("is_cut", "name"), [("true", "ip-10-100-200-1"), ("false", "ip-10-100-200-150")])
def test_a_long_host_name_is_cut_as_the_config_says(node: MachineNode, is_cut: str, name: str) -> None:
    spec = load_today(BASE, f"host_names.netbios_compatible={is_cut}").specs["aws"]
    given = dataclasses.replace(GIVEN, host_name="ip-10-100-200-150.us-east-2.compute.internal")
    assert wanted_node(dataclasses.replace(node, spec=spec, given=given)) == name


@pytest.mark.parametrize(
    ("log", "fault"),
    [(None, "did not start first-boot.ps1"), (b"", ""), (b"failed: one\r\n\r\ntwo\r\n", "everything: one, two")],
)
def test_the_log_of_first_boot_is_read(node: MachineNode, log: bytes | None, fault: str) -> None:
    if log is not None:
        put_file(node.machine, r"C:\Windows\Setup\Scripts\first-boot.log", log)
    (verdict,) = judge(node, ["setup"])
    assert "".join(verdict.texts).endswith(fault)
    assert verdict.passed is not bool(fault)


def test_templates_that_stand_as_they_are_are_found(node: MachineNode) -> None:
    put_file(node.machine, r"C:\run\kubeadm\join.yaml", b"name: '{{ v1.local_hostname }}'")
    put_file(node.machine, r"C:\run\other.yaml", b"name: {one}")
    put_file(node.machine, r"C:\opt\other.yaml", b"name: '{{ v1.local_hostname }}'")
    (verdict,) = judge(node, ["user-data"])
    assert next(one for one in verdict.texts if "a template in" in one).startswith(
        r"a template in C:\run\kubeadm\join.yaml was not rendered"
    )


CLOSED = (
    Guarded(r"C:\closed", frozenset()),
    Guarded(r"C:\readable", frozenset({"Read"})),
    Guarded(r"C:\closed\pods", frozenset({"Read"})),
)


@pytest.mark.parametrize(
    ("path", "leaks"),
    [
        (r"C:\opt\token.txt", True),
        (r"C:\readable\token.txt", True),
        (r"C:\closed\pods\token", True),
        (r"C:\closed-old\token", True),
        (r"C:\closed\token", False),
        (r"C:\CLOSED\token", False),
        (r"C:\closed\token.log", True),
        (r"C:\closed\token.log.1", True),
        (r"C:\closed\log\token", True),
        (r"C:\closed\Logs\token", True),
        (r"C:\closed\catalog\token", False),
        (r"C:\closed\token.log\x", False),
    ],
)
def test_a_secret_may_be_in_a_closed_folder_and_in_no_log(node: MachineNode, path: str, leaks: bool) -> None:
    put_file(node.machine, path, f"a {MARK} b".encode())
    assert find_leaks(node, [MARK], CLOSED) == ([path] if leaks else [])


@pytest.mark.parametrize(
    "data",
    [
        MARK.encode("utf-16-le"),
        f"\ufeffx{MARK}".encode("utf-16-le"),
        *(base64.b64encode(b"k" * before + MARK.encode() + b"n" * after) for before in range(4) for after in range(4)),
    ],
)
def test_a_secret_is_known_in_each_of_its_spellings(node: MachineNode, data: bytes) -> None:
    node.machine.files.write(r"C:\a.txt", data)
    assert find_leaks(node, ["another", MARK], CLOSED) == [r"C:\a.txt"]


@pytest.mark.parametrize("data", [MARK[:-1].encode(), MARK.upper().encode(), base64.b64encode(MARK[:-3].encode())])
def test_other_text_is_no_secret(node: MachineNode, data: bytes) -> None:
    node.machine.files.write(r"C:\a.txt", data)
    assert find_leaks(node, [MARK], CLOSED) == []


def test_a_secret_on_a_console_leaks(node: MachineNode) -> None:
    consoles = {"COM1": b"quiet", "COM2": f"token {MARK}\r\n".encode()}
    assert find_leaks(dataclasses.replace(node, consoles=consoles), [MARK], CLOSED) == ["the console on COM2"]


FILES = {
    r"C:\run\kubeadm\join.yaml": b"one",
    r"C:\etc\kubernetes\kubelet.conf": b"one",
    r"C:\Users\capi\.ssh\authorized_keys": b"key",
    r"C:\ProgramData\ssh\administrators_authorized_keys": b"key",
    r"C:\Users\capi\ntuser.dat": b"one",
    r"C:\opt\x.txt": b"one",
}


def write(path: str) -> Change:
    return lambda machine: machine.files.write(path, b"two")


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda _: None, []),
        *((write(path), [path]) for path in list(FILES)[:4]),
        *((write(path), []) for path in list(FILES)[4:]),
        (lambda machine: machine.files.remove(r"C:\run\kubeadm\join.yaml"), [r"C:\run\kubeadm\join.yaml"]),
        (write(r"C:\run\new"), [r"C:\run\new"]),
        (lambda machine: setattr(machine.accounts.need_user("capi"), "password", "second"), ["account capi"]),
        (lambda machine: setattr(machine.accounts.need_user("capi"), "enabled", False), ["account capi"]),
        # cloudbase-init itself does this at every start.
        (lambda machine: setattr(machine.accounts.need_user("cloudbase-init"), "password", "second"), []),
        (lambda machine: machine.accounts.add_user("new", ""), ["account new"]),
        (lambda machine: machine.certificates.add(Certificate("A" * 40)), [r"the certificates in LocalMachine\My"]),
        (lambda machine: machine.accounts.add_group("new"), ["group new"]),
        (lambda machine: machine.accounts.add_member("Users", "capi"), ["group Users"]),
        (lambda machine: [machine.set_host_name("another"), machine.restart()], ["the host name"]),
    ],
)
def test_a_second_boot_that_changes_something_is_seen(node: MachineNode, change: Change, changed: list[str]) -> None:
    for path, data in FILES.items():
        put_file(node.machine, path, data)
    folders = [r"C:\etc\kubernetes", r"C:\none"]
    before = take_snapshot(node.machine, folders)
    change(node.machine)
    assert find_changes(before, take_snapshot(node.machine, folders)) == changed


def test_a_path_that_windows_cannot_have_is_no_file(node: MachineNode) -> None:
    assert (node.read("C:\\a|b"), node.read(""), node.below(r"C:\none"), list(node.access(r"C:\none"))) == (
        *(None, None, [], []),
    )
    assert (node.service("none"), node.subkeys(r"HKLM:\None"), node.value(r"HKLM:\None", "x")) == (None, [], None)
