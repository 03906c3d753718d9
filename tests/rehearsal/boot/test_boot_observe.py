"""The facts that a rehearsal takes from the model machine."""

from __future__ import annotations

import base64
import contextlib
import gzip
from typing import TYPE_CHECKING

import pytest

from imagegen.boot.facts import Access, Reach, Service
from imagegen.boot.guarded import Guarded, find_open, list_guarded
from imagegen.catalog.facts import paths
from imagegen.rehearsal.boot import observe
from imagegen.rehearsal.machine.access import ADMINISTRATORS, EVERYONE, SYSTEM, USERS, AccessEntry
from imagegen.rehearsal.machine.access import write as write_access
from imagegen.rehearsal.machine.certificates import Certificate
from imagegen.rehearsal.machine.firewall import Rule
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.stock import LISTENER
from imagegen.rehearsal.machine.windows import Machine
from tests.rehearsal.boot.conftest import put_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Change = Callable[[Machine], object]

SERVICE = "cloudbase-init"
CONF = r"C:\cloudbase init\conf\cloudbase-init.conf"
LOG = r"C:\cloudbase init\log\cloudbase-init.log"
MARK = "abcdef.0123456789abcdef"
FULL = tuple(AccessEntry(sid, "FullControl", inherit=True) for sid in (SYSTEM, ADMINISTRATORS))
READERS = AccessEntry(USERS, "ReadAndExecute", inherit=True)
SETTINGS = r"""
[DEFAULT]
plugins=a.b.MTUPlugin, a.b.UserDataPlugin,
metadata_services=x.AzureService
logdir=C:\cloudbase init\log
logfile=cloudbase-init.log
"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path / "disk", features={}, needing_restart=())
    write_access(machine.files, "C:", [*FULL, READERS], protected=True)
    program = r'"C:\cloudbase init\bin\service.exe"'
    command = rf'{program} cloudbase-init "C:\cloudbase init\python.exe" --config-file "{CONF}"'
    machine.services.create(SERVICE, command, "cloudbase-init", 3)
    machine.services.configure(SERVICE, "ObjectName", Value("String", r".\cloudbase-init"))
    put_file(machine, CONF, SETTINGS.encode())
    machine.accounts.add_user("cloudbase-init", "first")
    machine.accounts.add_user("capi", "first")
    return machine


def settings_with(machine: Machine, text: str) -> observe.FirstBootFiles:
    machine.files.write(CONF, (SETTINGS + text).encode())
    return observe.read_settings(machine, SERVICE)


def test_the_configuration_is_the_one_that_the_service_reads(machine: Machine) -> None:
    assert observe.read_settings(machine, SERVICE) == observe.FirstBootFiles(
        conf=CONF,
        log=LOG,
        plugins=("MTUPlugin", "UserDataPlugin"),
        services=("AzureService",),
        unreported=("metadata_report_provisioning_started", "metadata_report_provisioning_completed"),
        debug=False,
    )


@pytest.mark.parametrize(
    ("value", "is_on"),
    [
        ("true", True),
        ("True ", True),
        ("1", True),
        ("on", True),
        ("YES", True),
        ("false", False),
        ("2", False),
        ("", False),
    ],
)
def test_options_are_on_as_cloudbase_init_reads_them(machine: Machine, value: str, is_on: bool) -> None:
    report = "metadata_report_provisioning_started"
    found = settings_with(machine, f"debug={value}\n{report}={value}\n")
    assert (found.debug, report not in found.unreported) == (is_on, is_on)
    assert "metadata_report_provisioning_completed" in found.unreported


def test_of_an_option_that_is_given_twice_the_last_one_counts(machine: Machine) -> None:
    assert settings_with(machine, "debug=false\ndebug=true\n").debug


@pytest.mark.parametrize("text", ["[DEFAULT", "", "logdir", "\ufeff[DEFAULT]"])
def test_a_configuration_that_cannot_be_read_says_nothing(machine: Machine, text: str) -> None:
    machine.files.write(CONF, text.encode())
    found = observe.read_settings(machine, SERVICE)
    assert (found.plugins, found.services, found.log, found.debug) == ((), (), "", False)
    # Without a line both reports are off, as cloudbase-init has it.
    assert len(found.unreported) == (0 if text else 2)


def test_a_configuration_that_is_not_there_turns_no_report_off(machine: Machine) -> None:
    machine.files.remove(CONF)
    assert observe.read_settings(machine, SERVICE).unreported == ()


def test_what_first_boot_could_not_do_is_read(machine: Machine) -> None:
    assert observe.read_first_boot_log(machine) is None
    path = r"C:\Windows\Setup\Scripts\first-boot.log"
    put_file(machine, path, b"")
    assert observe.read_first_boot_log(machine) == ()
    put_file(machine, path, b"failed: one\r\n\r\nother\r\n")
    assert observe.read_first_boot_log(machine) == ("one", "other")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("nodeRegistration:\n  name: worker-7\n", "worker-7"),
        ("nodeRegistration:\n  name: 'worker-7'\r\n", "worker-7"),
        ("  name: '{{ ds.meta_data[\"local_hostname\"] }}'\n", "Node-Long-Name"),
        ("users:\n  - name: bob\n", "node-long"),
        ("name: top\n", "node-long"),
        ("", "node-long"),
    ],
)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_the_nodes_name_is_that_of_the_user_data(text: str, wanted: str, is_compressed: bool) -> None:
    data = gzip.compress(text.encode()) if is_compressed else text.encode()
    assert observe.find_wanted_node(data, "Node-Long-Name", "NODE-LONG") == wanted


def test_templates_that_stand_as_they_are_are_found(machine: Machine) -> None:
    assert observe.find_unrendered(machine) == []
    put_file(machine, r"C:\run\kubeadm\join.yaml", b"name: '{{ v1.local_hostname }}'")
    put_file(machine, r"C:\run\other.yaml", b"name: {one}")
    put_file(machine, r"C:\opt\other.yaml", b"name: '{{ v1.local_hostname }}'")
    assert observe.find_unrendered(machine) == [r"C:\run\kubeadm\join.yaml"]


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
        (r"C:\closed\MARK.LOG.failed", True),
        (r"C:\closed\log\token", True),
        (r"C:\closed\Logs\token", True),
        (r"C:\closed\catalog\token", False),
        (r"C:\closed\token.log\x", False),
    ],
)
def test_a_secret_may_be_in_a_closed_folder_and_in_no_log(machine: Machine, path: str, leaks: bool) -> None:
    put_file(machine, path, f"a {MARK} b".encode())
    assert observe.find_leaks(machine, [MARK], {}, CLOSED) == ([path] if leaks else [])


@pytest.mark.parametrize(
    "data",
    [
        MARK.encode("utf-16-le"),
        f"\ufeffx{MARK}".encode("utf-16-le"),
        *(base64.b64encode(b"k" * before + MARK.encode() + b"n" * after) for before in range(4) for after in range(4)),
    ],
)
def test_a_secret_is_known_in_each_of_its_spellings(machine: Machine, data: bytes) -> None:
    machine.files.write(r"C:\a.txt", data)
    assert observe.find_leaks(machine, ["another", MARK], {}, CLOSED) == [r"C:\a.txt"]


@pytest.mark.parametrize("data", [MARK[:-1].encode(), MARK.upper().encode(), base64.b64encode(MARK[:-3].encode())])
def test_other_text_is_no_secret(machine: Machine, data: bytes) -> None:
    machine.files.write(r"C:\a.txt", data)
    assert observe.find_leaks(machine, [MARK], {}, CLOSED) == []


def test_a_secret_on_a_console_leaks(machine: Machine) -> None:
    consoles = {"COM1": b"quiet", "COM2": f"token {MARK}\r\n".encode()}
    assert observe.find_leaks(machine, [MARK], consoles, CLOSED) == ["the console on COM2"]


ADDRESS = "192.0.2.1"
# Everybody but SYSTEM; administrators are an exception; everybody.
ALL_BUT_SYSTEM = "O:LSD:(D;;CC;;;S-1-5-18)(A;;CC;;;S-1-1-0)"
ALL_BUT_ADMINISTRATORS = "O:LSD:(D;;CC;;;S-1-5-32-544)(A;;CC;;;S-1-1-0)"


@pytest.mark.parametrize(
    ("condition", "account", "reaching"),
    [
        (ALL_BUT_SYSTEM, "SYSTEM", ["cloudbase-init's account"]),
        (ALL_BUT_SYSTEM, "capi", []),
        (ALL_BUT_ADMINISTRATORS, "SYSTEM", ["a container's administrator", "cloudbase-init's account"]),
        ("Any", "SYSTEM", []),
        ("", "SYSTEM", ["a container", "a container's administrator", "cloudbase-init's account"]),
    ],
)
def test_who_reaches_the_clouds_address(machine: Machine, condition: str, account: str, reaching: list[str]) -> None:
    if condition:
        rule = Rule("r", "r", "out", "block", "TCP", "80", remote_address=ADDRESS, local_user=condition)
        machine.firewall.add(rule)
    found = list(observe.look_at_address(machine, {ADDRESS: [80]}, account))
    assert found == [
        Reach(account=name, address=ADDRESS, port=80, may=name.startswith("cloudbase"), can=name in reaching)
        for name in ("a container", "a container's administrator", "cloudbase-init's account")
    ]


def test_an_account_that_does_not_exist_reaches_nothing(machine: Machine) -> None:
    found = list(observe.look_at_address(machine, {ADDRESS: [80, 81]}, "nobody"))
    assert [(one.account, one.port) for one in found] == [
        (name, port) for name in ("a container", "a container's administrator") for port in (80, 81)
    ]
    assert list(observe.look_at_address(machine, {}, "SYSTEM")) == []


CSI_PROXY, CSI_LOG = r"C:\k\csi-proxy.exe", r"C:\var\log\csi-proxy\csi-proxy.log"
COMMAND = rf"{CSI_PROXY} -windows-service -log_file={CSI_LOG} -logtostderr=false"


def _with_service(machine: Machine, command: str = COMMAND, access: Sequence[AccessEntry] = FULL) -> Machine:
    put_file(machine, CSI_PROXY, b"MZ")
    machine.files.make_folder(CSI_LOG.rpartition("\\")[0])
    write_access(machine.files, CSI_LOG.rpartition("\\")[0], access, protected=True)
    machine.services.create("csi-proxy", command, "csi-proxy", 2)
    with contextlib.suppress(RefusedByWindows):
        machine.services.start("csi-proxy")
    return machine


def _look(machine: Machine) -> Service:
    (found,) = observe.look_at_services(machine, ["csi-proxy"])
    return found


def test_a_service_runs_and_keeps_a_closed_log(machine: Machine) -> None:
    expected = Service(name="csi-proxy", is_running=True, failure="", log=CSI_LOG, readers=())
    assert _look(_with_service(machine)) == expected


def test_who_reads_the_log_of_a_service(machine: Machine) -> None:
    assert _look(_with_service(machine, access=[*FULL, READERS])).readers == (USERS,)


@pytest.mark.parametrize(
    ("command", "is_running", "failure"),
    [
        (COMMAND.replace(" -logtostderr=false", ""), True, ""),
        (COMMAND.replace(f" -log_file={CSI_LOG}", ""), True, ""),
        (COMMAND.replace(" -windows-service", ""), False, "runs without -windows-service (error 1053)"),
        (COMMAND.replace(r"csi-proxy\csi", r"other\csi"), False, r"there is no folder C:\var\log\other"),
        (f"{COMMAND} -vmodule=x", False, "does not know the flag -vmodule of csi-proxy.exe"),
    ],
)
def test_a_service_without_its_flags_keeps_no_log_or_does_not_run(
    machine: Machine, command: str, is_running: bool, failure: str
) -> None:
    found = _look(_with_service(machine, command))
    assert (found.is_running, found.log) == (is_running, "")
    assert failure in found.failure
    assert bool(failure) == bool(found.failure)


def test_a_service_that_is_not_in_the_image_does_not_run(machine: Machine) -> None:
    found = _look(machine)
    assert (found.is_running, found.failure, found.log) == (False, "it is not in the image", "")


def test_the_rights_are_walked_file_by_file(machine: Machine) -> None:
    put_file(machine, r"C:\closed\a\b.txt", b"")
    deny = AccessEntry(USERS, "Write", inherit=True, deny=True)
    write_access(machine.files, r"C:\closed", [*FULL, deny], protected=True)
    write_access(machine.files, r"C:\closed\a\b.txt", [AccessEntry(EVERYONE, "Read", inherit=False)], protected=False)
    owners = [(sid, "FullControl") for sid in (SYSTEM, ADMINISTRATORS)]
    guards = [Guarded(r"C:\closed", frozenset()), Guarded(r"C:\closed\a", frozenset()), Guarded(r"C:\no", frozenset())]
    assert [(one.path, one.sid, one.rights) for one in observe.list_access(machine, guards)] == [
        *((r"C:\closed", *one) for one in owners),
        *((r"C:\closed\a", *one) for one in owners),
        (r"C:\closed\a\b.txt", EVERYONE, "Read"),
        *((r"C:\closed\a\b.txt", *one) for one in owners),
    ]


def test_own_files_are_compared_and_their_rights_listed(machine: Machine) -> None:
    tool, script = r"C:\tools\tool.exe", r"C:\tools\script.ps1"
    for path in (tool, script):
        put_file(machine, path, b"1")
    write_access(machine.files, tool, [AccessEntry(USERS, "Write", inherit=False)], protected=True)
    found = list(observe.look_at_own_files(machine, {tool: None, script: b"2", r"C:\no.exe": None}))
    assert [(one.path, one.state) for one in found] == [(tool, "there"), (script, "changed"), (r"C:\no.exe", "missing")]
    assert found[0].access == (Access(path=tool, sid=USERS, rights="Write"),)
    assert [one.sid for one in found[1].access] == [SYSTEM, ADMINISTRATORS, USERS]
    (same,) = observe.look_at_own_files(machine, {script: b"1"})
    assert same.state == "there"


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_folder_of_user_data_is_open_unless_the_image_closed_it(machine: Machine, *, is_closed: bool) -> None:
    for folder in (r"C:\etc", r"C:\opt", r"C:\run", r"C:\usr", r"C:\var") if is_closed else ():
        machine.files.make_folder(folder)
        write_access(machine.files, folder, FULL, protected=True)
    put_file(machine, r"C:\run\own\x", b"")
    guarded = list_guarded(paths())
    found = {access.path for _, access in find_open(guarded, observe.list_access(machine, guarded))}
    assert found == (set() if is_closed else {r"C:\run", r"C:\run\own", r"C:\run\own\x"})


def rule(name: str, direction: str = "in", action: str = "allow", port: str = "5986") -> Change:
    return lambda machine: machine.firewall.add(Rule(name, f"rule {name}", direction, action, "TCP", port))


def add_certificates(*thumbprints: str) -> Change:
    def change(machine: Machine) -> None:
        for one in thumbprints:
            machine.certificates.add(Certificate(one))

    return change


def open_builder(*, name: str = "packer", is_as_built: bool = True) -> Change:
    def change(machine: Machine) -> None:
        user = machine.accounts.need_user("packer")
        user.enabled, user.password = True, user.password if is_as_built else "another"
        machine.accounts.rename_user("packer", name)

    return change


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda _: None, ([], [], [], [])),
        (lambda machine: machine.registry.make_key(LISTENER), (["*+HTTPS"], [], [], [])),
        (add_certificates("A", "B"), ([], ["A"], [], [])),
        (rule("one"), ([], [], ["rule one"], [])),
        (rule("several", port="80,5986"), ([], [], ["rule several"], [])),
        (rule("out", direction="out"), ([], [], [], [])),
        (rule("block", action="block"), ([], [], [], [])),
        (rule("other", port="59860"), ([], [], [], [])),
        (open_builder(), ([], [], [], ["packer"])),
        (open_builder(name="renamed"), ([], [], [], ["renamed"])),
        (open_builder(is_as_built=False), ([], [], [], [])),
        (lambda machine: machine.accounts.add_user("new", "built"), ([], [], [], [])),
    ],
)
def test_what_is_left_of_the_builder(tmp_path: Path, change: Change, left: tuple[list[str], ...]) -> None:
    image = Machine(tmp_path / "image", features={}, needing_restart=())
    image.certificates.add(Certificate("A"))
    image.accounts.add_user("packer", "built")
    image.accounts.add_user("monitoring", "its own")
    for user in image.accounts.users:
        user.enabled = user.name in ("packer", "monitoring")
    node = image.copy(tmp_path / "node")
    node.certificates.remove("A")
    node.accounts.need_user("packer").enabled = False
    change(node)
    found = observe.look_for_builder(node, image, ["Monitoring"])
    assert tuple(map(list, (found.listeners, found.certificates, found.rules, found.accounts))) == left


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
        (write(r"C:\Users\capi\.ssh\authorized_keys2"), [r"C:\Users\capi\.ssh\authorized_keys2"]),
        (lambda machine: setattr(machine.accounts.need_user("capi"), "password", "second"), ["account capi"]),
        (lambda machine: setattr(machine.accounts.need_user("capi"), "enabled", False), ["account capi"]),
        # cloudbase-init itself does this at every start.
        (lambda machine: setattr(machine.accounts.need_user("cloudbase-init"), "password", "second"), []),
        (
            lambda machine: setattr(machine.accounts.need_user("cloudbase-init"), "enabled", False),
            ["account cloudbase-init"],
        ),
        (lambda machine: machine.accounts.add_user("new", ""), ["account new"]),
        (add_certificates("A"), [r"the certificates in LocalMachine\My"]),
        (lambda machine: machine.accounts.add_group("new"), ["group new"]),
        (lambda machine: machine.accounts.add_member("Users", "capi"), ["group Users"]),
    ],
)
def test_a_second_boot_that_changes_something_is_seen(machine: Machine, change: Change, changed: list[str]) -> None:
    for path, data in FILES.items():
        put_file(machine, path, data)

    def look() -> observe.Snapshot:
        return observe.take_snapshot(machine, SERVICE, {}, [r"C:\etc\kubernetes", r"C:\none"])

    before = look()
    change(machine)
    assert before.changes(look()) == changed


def test_a_second_boot_keeps_the_name_and_what_the_caller_adds(machine: Machine) -> None:
    before = observe.take_snapshot(machine, SERVICE, {"node a": "1", "node b": "1"}, [])
    machine.set_host_name("another")
    machine.restart()
    later = observe.take_snapshot(machine, SERVICE, {"node a": "1", "node c": "1"}, [])
    assert before.changes(later) == ["node b", "node c", "the host name"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('KUBELET_KUBEADM_ARGS="--a=1 --b=2"\n', ("--a=1", "--b=2")),
        ("KUBELET_KUBEADM_ARGS='--a=1'", ("--a=1",)),
        ('KUBELET_KUBEADM_ARGS=""', ()),
        ("OTHER=1", ()),
        ("", ()),
    ],
)
def test_kubeadms_arguments_are_read(machine: Machine, text: str, arguments: tuple[str, ...]) -> None:
    put_file(machine, r"C:\kubelet\flags.env", text.encode())
    assert observe.read_kubeadm_arguments(machine, r"C:\kubelet\flags.env") == arguments


def test_a_file_that_is_not_there_has_no_text(machine: Machine) -> None:
    put_file(machine, r"C:\a.txt", b"\xff a")
    assert observe.read_text(machine, r"C:\a.txt") == "\ufffd a"
    assert [observe.read_text(machine, path) for path in ("", r"C:\none", "C:", "own.log", r"\own")] == [""] * 5
