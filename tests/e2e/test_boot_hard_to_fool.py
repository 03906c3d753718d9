"""A boot that passes when something is taken away proves nothing: each of these must fail, and name its cause first.

Each case changes the captured disk, its registry or its services, or what the machine's creator gave it. The real
cloudbase-init then runs on a copy of that machine.
"""

from __future__ import annotations

import dataclasses
import gzip
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.user_data import make_user_data
from imagegen.rehearsal.machine.address import NODE_ADDRESS
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.seal import ANSWER_FILES, SETUP_SCRIPTS
from imagegen.rehearsal.machine.services import AUTOMATIC
from tests.e2e.boot_support import boot, capture, change_text, read_cluster_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.booted import Boot
    from imagegen.rehearsal.boot.model import Instance
    from imagegen.rehearsal.boot.user_data import Join, UserData
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]
    MakeData = Callable[[Join], UserData]
    BootChanged = Callable[..., Boot]

pytestmark = pytest.mark.e2e

LOG_FOLDER = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log"
PROGRAM = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\Python\Scripts\cloudbase-init.exe"
CONF = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init\conf\cloudbase-init.conf"
SETUP_COMPLETE = rf"{SETUP_SCRIPTS}\SetupComplete.cmd"
KUBELET_SCRIPT = r"C:\k\start-kubelet.ps1"
FIRST_BOOT = rf"{SETUP_SCRIPTS}\first-boot.ps1"
USER_DATA = ",cloudbaseinit.plugins.common.userdata.UserDataPlugin"
HOST_NAME = ",cloudbaseinit.plugins.common.sethostname.SetHostNamePlugin"
REPORTS = ("metadata_report_provisioning_started=true\n", "metadata_report_provisioning_completed=true\n")
STARTS_FIRST_BOOT = '"%SystemRoot%\\System32\\WindowsPowerShell'
MULTI_PART = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="part"

--part
Content-Type: {kind}; charset="us-ascii"
Content-Disposition: attachment; filename="node"

{text}
--part--
"""


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Machine]:
    """The captured machine of each target."""
    made: dict[str, Machine] = {}

    def image(target: str) -> Machine:
        if target not in made:
            made[target] = capture(target, tmp_path_factory.mktemp(target))
        return made[target]

    return image


@pytest.fixture
def boot_changed(images: Callable[[str], Machine], tmp_path: Path) -> BootChanged:
    """Boots a node from a changed image."""

    def run(
        target: str,
        change: Change = lambda _: None,
        make_data: MakeData = make_user_data,
        change_instance: Callable[[Instance], Instance] = lambda instance: instance,
    ) -> Boot:
        machine = images(target).copy(tmp_path / "disk")
        change(machine)
        return boot(machine, target, tmp_path, make_data, change_instance)

    return run


def edit(path: str, *pairs: tuple[str, str]) -> Change:
    def change(machine: Machine) -> None:
        for old, new in pairs:
            change_text(machine, path, old, new)

    return change


def remove(*paths: str) -> Change:
    def change(machine: Machine) -> None:
        for path in paths:
            machine.files.remove(path)

    return change


def write(path: str, content: bytes) -> Change:
    return lambda machine: machine.files.write(path, content)


def data(change: Callable[[str, Join], str]) -> MakeData:
    """The rehearsed user data, changed."""

    def make(join: Join) -> UserData:
        own = make_user_data(join)
        text = own.text.decode()
        changed = change(text, join)
        assert changed != text, "the change changes nothing"
        return dataclasses.replace(own, text=changed.encode())

    return make


def command(line: str) -> MakeData:
    """One more command after the join."""
    return data(lambda text, join: f"{text}  - {line.format(token=join.token)}\n")


def cluster_data(name: str, change: Callable[[str], str] = lambda text: text) -> MakeData:
    def make(join: Join) -> UserData:
        return dataclasses.replace(make_user_data(join), text=change(read_cluster_data(name, join)).encode())

    return make


def in_parts(text: str, kind: str = "text/cloud-config") -> str:
    return MULTI_PART.format(kind=kind, text=text)


def with_name(text: str, name: str) -> str:
    """User data of Cluster API with the node's name written out."""
    return text.replace("'{{ v1.local_hostname }}'", name).replace("## template: jinja\n", "")


def compressed(join: Join) -> UserData:
    own = make_user_data(join)
    return dataclasses.replace(own, text=gzip.compress(own.text))


def without_name(text: str, _join: Join) -> str:
    line = """        name: '{{ ds.meta_data["local_hostname"] }}'\n"""
    return text.replace(line, "")


def _make_automatic(machine: Machine) -> None:
    machine.services.configure("cloudbase-init", "Start", Value("DWord", AUTOMATIC))


def _run_as_nobody(machine: Machine) -> None:
    machine.services.configure("cloudbase-init", "ObjectName", Value("String", r".\cloudbase-init"))


def _remove_answers(machine: Machine) -> None:
    found = [path for path in ANSWER_FILES if machine.files.is_file(path)]
    assert found
    remove(*found)(machine)


@dataclasses.dataclass(frozen=True)
class Case:
    """What is changed, the beginning of the first fault, and what else the faults have to say."""

    name: str
    target: str
    first: str
    others: tuple[str, ...] = ()
    change: Change = lambda _: None
    make_data: MakeData = make_user_data
    change_instance: Callable[[Instance], Instance] = lambda instance: instance


_NOT_JOINED = ("join: kubeadm did not run", "node: no node registered with the cluster")
CASES = (
    Case(
        "no-reports",
        "azure",
        "ready: cloudbase-init does not report to the cloud: metadata_report_provisioning_started and "
        "metadata_report_provisioning_completed must be true (B1)",
        ("the cloud says: OSProvisioningTimedOut",),
        edit(CONF, *((line, "") for line in REPORTS)),
    ),
    Case(
        "no-report-of-the-end",
        "azure",
        "ready: cloudbase-init does not report to the cloud: metadata_report_provisioning_completed must be true (B1)",
        ("the cloud says: OSProvisioningTimedOut",),
        edit(CONF, (REPORTS[1], "metadata_report_provisioning_completed=false\n")),
    ),
    *(
        Case(
            f"no-user-data-plugin-{target}",
            target,
            "user-data: no user data ran: the list of plugins has no UserDataPlugin",
            _NOT_JOINED,
            edit(CONF, (USER_DATA, "")),
        )
        for target in ("aws", "azure")
    ),
    *(
        Case(
            f"name-after-user-data-{target}",
            target,
            "node: the machine joined before it had its name: UserDataPlugin is before SetHostNamePlugin in the list",
            ("the cluster has node win-",),
            edit(CONF, (USER_DATA, ""), (HOST_NAME, USER_DATA + HOST_NAME)),
            data(without_name),
        )
        for target in ("aws", "azure")
    ),
    Case(
        "no-host-name-plugin",
        "aws",
        "host-name: the list of plugins has no SetHostNamePlugin",
        ("the host name is WIN-",),
        edit(CONF, (HOST_NAME, "")),
    ),
    Case(
        "a-plugin-that-does-not-exist",
        "aws",
        "cloudbase-init: there is no plugin cloudbaseinit.plugins.common.mtus.MTUPlugin",
        (),
        edit(CONF, ("mtu.MTUPlugin", "mtus.MTUPlugin")),
    ),
    Case(
        "a-plugin-that-ends-cloudbase-init",
        "aws",
        "cloudbase-init: cloudbase-init did not come to its end: AttributeError: module "
        "'cloudbaseinit.plugins.common.mtu' has no attribute 'MtuPlugin'",
        ("user-data: no user data ran", *_NOT_JOINED),
        edit(CONF, ("mtu.MTUPlugin", "mtu.MtuPlugin")),
    ),
    Case(
        "service-is-automatic",
        "azure",
        "cloudbase-init: cloudbase-init was started before Windows Setup had ended",
        (),
        _make_automatic,
    ),
    Case(
        "no-setup-complete",
        "azure",
        "setup: the image has no SetupComplete.cmd",
        ("cloudbase-init: cloudbase-init did not run", "ready: the cloud says: OSProvisioningTimedOut", *_NOT_JOINED),
        remove(SETUP_COMPLETE),
    ),
    Case(
        "no-answer-file",
        "aws",
        "setup: Windows Setup asks every question at the console: there is no answer file",
        (),
        _remove_answers,
    ),
    *(
        Case(
            f"debug-{target}",
            target,
            "secrets: cloudbase-init writes user data into its log, because debug is true (B7); a secret of the user "
            r"data is in C:\Program Files\Cloudbase Solutions\Cloudbase-Init\log\cloudbase-init.log",
            (),
            edit(CONF, ("debug=false", "debug=true")),
        )
        for target in ("aws", "azure")
    ),
    Case(
        "debug-at-the-serial-port",
        "aws",
        "secrets: cloudbase-init writes user data into its log, because debug is true (B7)",
        ("the console on COM1",),
        edit(CONF, ("debug=false", "debug=true\nlogging_serial_port_settings=COM1,115200,N,8")),
    ),
    Case(
        "token-in-a-file-without-path",
        "aws",
        "user-data: a file of the user data has no path or no content (B8)",
        ("secrets: cloudbase-init writes user data that it cannot use into its log (B8)",),
        make_data=data(lambda text, join: text.replace("runcmd:", f"-   content: {join.token}\nruncmd:")),
    ),
    Case(
        "conf-is-missing",
        "aws",
        r"cloudbase-init: cloudbase-init did not come to its end: ",
        (CONF, "user-data: no user data ran", *_NOT_JOINED),
        remove(CONF),
    ),
    Case(
        "conf-with-a-byte-order-mark",
        "azure",
        "cloudbase-init: cloudbase-init did not come to its end: ",
        ("OSProvisioningTimedOut", *_NOT_JOINED),
        edit(CONF, ("[DEFAULT]", "\ufeff[DEFAULT]")),
    ),
    Case(
        "conf-is-missing-and-so-is-no-cause-of-a-missing-report",
        "azure",
        "cloudbase-init: cloudbase-init did not come to its end: ",
        ("ready: the cloud says: OSProvisioningTimedOut", *_NOT_JOINED),
        remove(CONF),
    ),
    Case(
        "program-is-missing",
        "aws",
        rf"cloudbase-init: cloudbase-init did not run: its service cannot find its program {PROGRAM}",
        _NOT_JOINED,
        remove(PROGRAM),
    ),
    Case(
        "service-is-missing",
        "azure",
        "cloudbase-init: cloudbase-init did not run: nothing started its service",
        _NOT_JOINED,
        lambda machine: machine.services.remove("cloudbase-init"),
    ),
    Case(
        "account-of-the-service-is-missing",
        "aws",
        "cloudbase-init: cloudbase-init did not run: the account of its service, cloudbase-init, does not exist",
        _NOT_JOINED,
        _run_as_nobody,
    ),
    Case(
        "log-folder-is-missing",
        "azure",
        "setup: Windows Setup restarts for ever: ",
        (rf"fails at every try: FileNotFoundError: cannot find {LOG_FOLDER}",),
        remove(LOG_FOLDER),
    ),
    Case(
        "another-metadata-service",
        "azure",
        "cloudbase-init: cloudbase-init found no metadata service that answers. Configured: ConfigDriveService",
        ("user-data: no user data ran", "OSProvisioningTimedOut", *_NOT_JOINED),
        edit(CONF, ("services.azureservice.AzureService", "services.configdrive.ConfigDriveService")),
    ),
    Case(
        "metadata-wants-tokens",
        "aws",
        "cloudbase-init: cloudbase-init found no metadata service that answers. Configured: EC2Service. The cloud "
        "refused its requests: this instance requires metadata tokens, and cloudbase-init sends none: set its "
        "httpTokens to optional",
        ("user-data: no user data ran", *_NOT_JOINED),
        change_instance=lambda instance: dataclasses.replace(instance, requires_tokens=True),
    ),
    Case(
        "no-key-pair",
        "aws",
        "cloudbase-init: SetUserSSHPublicKeysPlugin failed, and so do templates in user data: the machine has no key "
        "pair. Start it with a key pair (B3)",
        ("user-data: UserDataPlugin failed", *_NOT_JOINED),
        change_instance=lambda instance: dataclasses.replace(instance, public_keys={}),
    ),
    *(
        Case(
            f"template-in-several-parts-{target}",
            target,
            r"user-data: a template in C:\run\kubeadm\kubeadm-join-config.yaml was not rendered: cloudbase-init "
            "renders templates in user data of one part only. Write the values out (B2)",
            ("nodeRegistration.name: Invalid value", "node: no node registered"),
            make_data=cluster_data(target, in_parts),
        )
        for target in ("aws", "azure")
    ),
    Case(
        "boothook",
        "aws",
        "user-data: cloudbase-init does not run a boothook (B4)",
        _NOT_JOINED,
        make_data=cluster_data("aws", lambda _: in_parts("#!/bin/bash\ntrue\n", "text/cloud-boothook")),
    ),
    Case(
        "scripts-run-twice",
        "aws",
        "user-data: the <powershell> script of the user data ran twice: the cloud's own agent runs such a script too "
        "(B5)",
        make_data=data(lambda *_: "<powershell>\nWrite-Output joined\n</powershell>\n"),
    ),
    Case(
        "a-flag-that-kubelet-no-longer-has",
        "azure",
        "join: kubeadm failed: error execution phase kubelet-start: kubelet does not run: failed to parse kubelet "
        "flag: unknown flag: --azure-container-registry-config (N8)",
        ("node: no node registered",),
        make_data=cluster_data("azure"),
    ),
    Case(
        "token-where-users-read",
        "azure",
        r"secrets: a secret of the user data is in C:\token.txt",
        make_data=command(r"echo {token} > C:\token.txt"),
    ),
    Case(
        "first-boot-does-not-run",
        "azure",
        "setup: SetupComplete.cmd did not start first-boot.ps1",
        (),
        edit(SETUP_COMPLETE, (STARTS_FIRST_BOOT, f"rem {STARTS_FIRST_BOOT}")),
    ),
    Case(
        "first-boot-is-missing",
        "aws",
        "setup: first-boot.ps1 could not do everything: The argument",
        (),
        remove(rf"{SETUP_SCRIPTS}\first-boot.ps1"),
    ),
    Case(
        "user-data-runs-at-every-start",
        "azure",
        "join: kubeadm did not run",
        (r"second-boot: a second boot changed C:\run\cluster-api\starts.txt",),
        make_data=data(lambda *_: "rem cmd\necho start >> C:\\run\\cluster-api\\starts.txt\nexit 1002\n"),
    ),
    Case(
        "user-data-runs-again-and-changes-nothing-of-the-node",
        "aws",
        "join: kubeadm did not run",
        ("second-boot: a second boot ran the user data again",),
        make_data=data(lambda *_: "rem cmd\necho start >> C:\\opt\\starts.txt\nexit 1002\n"),
    ),
    *(
        Case(
            f"a-second-boot-{what}-{target}",
            target,
            f"second-boot: a second boot changed {why}",
            make_data=command(f"'echo {line} \"{CONF}\"'"),
        )
        for target in ("aws", "azure")
        for what, line, why in (
            ("ends-early", "x>>", "that cloudbase-init ends (ConfigFileParseError: Failed to parse "),
            (
                "finds-no-metadata",
                "metadata_services=cloudbaseinit.metadata.services.configdrive.ConfigDriveService>>",
                "that cloudbase-init finds a metadata service that answers",
            ),
        )
    ),
    Case(
        "a-second-boot-does-not-start-cloudbase-init",
        "aws",
        "second-boot: a second boot changed that cloudbase-init ends",
        make_data=command("""'sc config cloudbase-init start= disabled'"""),
    ),
    Case(
        "user-data-restarts-for-ever",
        "aws",
        "cloudbase-init: cloudbase-init asks for a restart at every start",
        ("second-boot: a second boot ran kubeadm.exe join",),
        make_data=command("exit 1003"),
    ),
    Case(
        "an-address-of-another-machine",
        "aws",
        "node: the cluster does not know the address 10.9.9.9 of --node-ip: no network card has it",
        make_data=cluster_data("minimal", lambda text: text.replace(f"value: {NODE_ADDRESS}", "value: 10.9.9.9")),
    ),
    Case(
        "an-unknown-command",
        "azure",
        "the rehearsal does not know the command 'set-up-node'",
        make_data=command("set-up-node --now"),
    ),
    Case(
        "a-command-that-fails",
        "aws",
        "user-data: a script of the user data ended with code 3",
        make_data=command("exit 3"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_boot_says_what_is_wrong(case: Case, boot_changed: BootChanged) -> None:
    faults = boot_changed(case.target, case.change, case.make_data, case.change_instance).faults
    assert faults, "the boot passed"
    assert faults[0].startswith(case.first), "\n".join(faults)
    assert [words for words in case.others if words not in "\n".join(faults)] == [], "\n".join(faults)


GONE_FLAG = "        - name: azure-container-registry-config\n          value: c:/k/azure.json\n"
PASSING: dict[str, tuple[str, MakeData]] = {
    "cluster-api-aws": ("aws", cluster_data("aws")),
    "cluster-api-azure": ("azure", cluster_data("azure", lambda text: text.replace(GONE_FLAG, ""))),
    "cluster-api-minimal-aws": ("aws", cluster_data("minimal")),
    "cluster-api-minimal-azure": ("azure", cluster_data("minimal")),
    "several-parts-with-a-name": ("azure", cluster_data("minimal", lambda text: in_parts(with_name(text, "worker-7")))),
    "compressed": ("aws", compressed),
    "name-from-the-machine": ("azure", data(without_name)),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_node_comes_up(name: str, boot_changed: BootChanged) -> None:
    target, make_data = PASSING[name]
    booted = boot_changed(target, make_data=make_data)
    assert booted.faults == []
    assert booted.record()["passed"] == [verdict.check.name for verdict in booted.verdicts]


@pytest.mark.parametrize("target", ["aws", "azure"])
def test_the_shipped_image_comes_up(target: str, boot_changed: BootChanged) -> None:
    booted = boot_changed(target)
    assert booted.faults == []
    names = [verdict.check.name for verdict in booted.verdicts]
    assert len(booted.lines) == len(names) + 1
    first, kubelet = (f"what the script {path} does" for path in (FIRST_BOOT, KUBELET_SCRIPT))
    assert booted.limits == (first, "what kubeadm and kubelet do: the join was taken as run", kubelet)


def test_a_name_that_is_written_out_needs_no_order_of_plugins(boot_changed: BootChanged) -> None:
    later = edit(CONF, (USER_DATA, ""), (HOST_NAME, USER_DATA + HOST_NAME))
    assert boot_changed("azure", later).faults == []


def test_a_cloud_that_asks_for_no_report_gets_none(boot_changed: BootChanged) -> None:
    assert boot_changed("aws", edit(CONF, *((line, "") for line in REPORTS))).faults == []
