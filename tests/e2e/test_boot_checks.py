"""A check that passes when something is taken away proves nothing. Each image is booted once; each case spoils a copy
of the booted machine, and asks the check that it is about.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.boot.judge import CHECKS, judge
from imagegen.boot.record import PATH as RECORD
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.access import USERS, AccessEntry, write
from imagegen.rehearsal.machine.files import fold
from imagegen.rehearsal.machine.ports import PortRange
from imagegen.rehearsal.machine.registry import Value
from tests.conftest import REPOSITORY, load_today
from tests.e2e.boot_support import change_text, find_faults, make_image, spoil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imagegen.rehearsal.boot.booted import Boot
    from imagegen.rehearsal.machine.windows import Machine

    Change = Callable[[Machine], object]

pytestmark = pytest.mark.e2e

BASE = "tests/rules/base.yaml"
IMAGE = "registry.example.com/app:1"
PROVIDER = "credential_providers=[{name: reg, url: 'https://artifacts.example.com/x', match_images: ['*.example.com']}]"
OLD = ("windows.release=2019", "runtime.containerd.version=1.6.39", "allow_eol=true", "kubernetes.version=1.22.17")
UPDATES = "windows.updates={categories: [critical, security], exclude: [KB5034439]}"
# By what is special of each: its target, its file and its settings.
IMAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "options": (
        "azure",
        BASE,
        (
            *("csi_proxy={}", "debug_tools=true", PROVIDER, f"images=[{IMAGE}]", "ssh={port: 2222}", "gmsa={}"),
            *("windows.time_zone=W. Europe Standard Time", "host_names.dns_suffix=nodes.example.com", UPDATES),
        ),
    ),
    "network": ("aws", BASE, ("cni.plugin=win-bridge", "kube_proxy=service", "kubernetes.service_manager=nssm")),
    "flannel": (
        "aws",
        BASE,
        ("cni.plugin=flannel", "windows.hyper_v=isolation", "targets.aws.instance_types=[m8i.large]"),
    ),
    "wins": ("aws", BASE, ("kube_proxy=none", "wins={version: 0.4.11}", *OLD)),
    "docker": ("aws", "tests/data/docker.yaml", ()),
    "own files": ("aws", "tests/data/own-files/config.yaml", ()),
}
_FOLDER = tempfile.TemporaryDirectory(prefix="imagegen-booted-")


@functools.cache
def booted(name: str) -> Boot:
    """A node of an image, which nobody changes."""
    target, file, sets = IMAGES[name]
    folder = Path(_FOLDER.name) / name
    folder.mkdir()
    image = make_image(target, folder / "image", load_today(REPOSITORY / file, *sets))
    return boot_image(image, Runner(folder, os.environ))


def remove(path: str) -> Change:
    return lambda machine: machine.files.remove(path)


def edit(path: str, old: str, new: str) -> Change:
    return lambda machine: change_text(machine, path, old, new)


def registry(key: str, name: str, data: str | int) -> Change:
    kind = "String" if isinstance(data, str) else "DWord"
    return lambda machine: machine.registry.write(key, name, Value(kind, data))


def service(name: str, value: str, data: str | int) -> Change:
    def change(machine: Machine) -> None:
        kind = "ExpandString" if isinstance(data, str) else "DWord"
        machine.services.configure(name, value, Value(kind, data))

    return change


def stop(name: str) -> Change:
    return lambda machine: machine.services.stop(name)


def no_service(name: str) -> Change:
    return lambda machine: machine.services.remove(name)


def open_to_users(path: str, rights: str = "ReadAndExecute") -> Change:
    def change(machine: Machine) -> None:
        inherits = machine.files.is_folder(path)
        write(machine.files, path, [AccessEntry(USERS, rights, inherit=inherits)], protected=True)

    return change


def record(change: Callable[[dict[str, Any]], object]) -> Change:
    def spoil_record(machine: Machine) -> None:
        found = json.loads(machine.files.read(RECORD))
        change(found)
        machine.files.write(RECORD, json.dumps(found).encode())

    return spoil_record


def close_port(port: str) -> Change:
    def change(machine: Machine) -> None:
        for rule in machine.firewall.rules:
            if rule.port == port:
                machine.firewall.remove(rule.name)

    return change


def _parameters(name: str) -> str:
    return rf"HKLM:\SYSTEM\CurrentControlSet\Services\{name}\Parameters"


K = r"C:\k"
SECRET = b"the secret of these cases"
CONTAINERD = r"C:\Program Files\containerd\config.toml"
SSH = r"C:\ProgramData\ssh"
ARGUMENTS = rf"{K}\kubelet-arguments.txt"
PROVIDERS = r"C:\var\lib\kubelet\credential-provider"
CONTROL = r"HKLM:\SYSTEM\CurrentControlSet\Control"
TCPIP = r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters"
WINS = r"C:\etc\rancher\wins\config"
CLASS = "{CCC2A336-D7F3-4818-A213-272B7924213E}"
TOOL = r"C:\ProgramData\tools\tool.exe"
AFTER = rf"{K}\post-kubeadm\02-prepare.ps1"
UNKNOWN = "credential-providers: kubelet does not know the credential provider reg (N14)"
# By what is spoiled: the image, the change, and how the fault begins.
SPOILED: dict[str, tuple[str, Change, str]] = {
    "time zone": (
        "options",
        registry(rf"{CONTROL}\TimeZoneInformation", "TimeZoneKeyName", "UTC"),
        "time-zone: the time zone is UTC, and the config has W. Europe Standard Time",
    ),
    "no daylight": (
        "options",
        registry(rf"{CONTROL}\TimeZoneInformation", "DynamicDaylightTimeDisabled", 1),
        "time-zone: the time zone is W. Europe Standard Time_dstoff",
    ),
    "suffix": ("options", registry(TCPIP, "Domain", ""), "dns-suffix: the DNS suffix is ''"),
    "power": (
        "options",
        registry(rf"{CONTROL}\Power\User\PowerSchemes", "ActivePowerScheme", "381b4222"),
        "power: the power plan is 381b4222, not high performance",
    ),
    "time service": ("options", stop("W32Time"), "time-service: the time service does not run"),
    "excluded ports": (
        "options",
        lambda machine: machine.ports.include("tcp", PortRange(30000, 2768)),
        "ports: a program can get the ports TCP 30000 to 32767",
    ),
    "dynamic ports": (
        "options",
        lambda machine: machine.ports.set_dynamic("udp", PortRange(49152, 16384)),
        "ports: programs can get 16383 udp ports, and need ",
    ),
    "defender": (
        "options",
        lambda machine: machine.defender.processes.remove(rf"{K}\kubelet.exe"),
        rf"defender: Defender scans the files that {K}\kubelet.exe opens",
    ),
    "proxy of updates": (
        "options",
        lambda machine: setattr(machine.updates, "proxy", "proxy:3128"),
        "updates: WinHTTP still has the proxy of the build: proxy:3128",
    ),
    "gmsa's list": (
        "options",
        lambda machine: machine.registry.remove_key(rf"{CONTROL}\CCG\COMClasses\{CLASS}"),
        "gmsa: Windows does not load the plugin of gMSAs",
    ),
    "gmsa's class": (
        "options",
        lambda machine: machine.registry.remove_key(rf"HKLM:\SOFTWARE\Classes\CLSID\{CLASS}"),
        "gmsa: the class of the plugin of gMSAs is not registered",
    ),
    "gmsa's program": (
        "options",
        remove(r"C:\Windows\System32\CCGAKVPlugin.dll"),
        "gmsa: the plugin of gMSAs is registered as ",
    ),
    "sshd": ("options", stop("sshd"), "ssh: sshd does not run"),
    "sshd's port": (
        "options",
        edit(rf"{SSH}\sshd_config", "Port 2222", "Port 22"),
        "ssh: sshd listens on port 22, and the config has 2222",
    ),
    "sshd's passwords": (
        "options",
        edit(rf"{SSH}\sshd_config", "PasswordAuthentication no", "PasswordAuthentication yes"),
        "ssh: sshd accepts passwords",
    ),
    "sshd's rule": (
        "options",
        close_port("2222"),
        "ssh: Windows' firewall blocks port 2222 of sshd",
    ),
    "sshd's shell": (
        "options",
        registry(r"HKLM:\SOFTWARE\OpenSSH", "DefaultShell", r"C:\other.exe"),
        r"ssh: an SSH session starts C:\other.exe",
    ),
    "kubelet's service": ("options", no_service("kubelet"), "kubelet: kubelet does not run"),
    "kubelet's program": (
        "options",
        remove(rf"{K}\kubelet.exe"),
        rf"kubelet: kubelet does not run: cannot find its program {K}\kubelet.exe (error 2)",
    ),
    "kubelet's log folder": (
        "options",
        remove(r"C:\var\log\kubelet"),
        "kubelet: kubelet does not run: kube-log-runner.exe cannot open ",
    ),
    "kubelet's rule": (
        "options",
        close_port("10250"),
        "kubelet: Windows' firewall blocks TCP port 10250",
    ),
    "volumes of pods": (
        "options",
        open_to_users(r"C:\var\lib\kubelet\pods", "Read"),
        "kubelet: containers may not write to their volumes",
    ),
    "nssm": ("network", remove(rf"{K}\nssm.exe"), "kubelet: kubelet does not run"),
    "nssm's program": (
        "network",
        registry(_parameters("kubelet"), "Application", r"C:\none.exe"),
        r"kubelet: kubelet does not run: nssm cannot find its program C:\none.exe",
    ),
    "providers' flags": ("options", edit(ARGUMENTS, "--image-credential-provider-config", "--other"), UNKNOWN),
    "providers' file": ("options", remove(r"C:\var\lib\kubelet\credential-provider-config.yaml"), UNKNOWN),
    "provider's program": (
        "options",
        remove(rf"{PROVIDERS}\reg.exe"),
        "credential-providers: kubelet cannot start the credential provider reg: its program is missing (N14)",
    ),
    "csi-proxy's program": (
        "options",
        remove(rf"{K}\csi-proxy.exe"),
        rf"services: service csi-proxy does not run: cannot find its program {K}\csi-proxy.exe (error 2)",
    ),
    "csi-proxy": (
        "options",
        no_service("csi-proxy"),
        "services: service csi-proxy does not run: it is not in the image",
    ),
    "csi-proxy stopped": ("options", stop("csi-proxy"), "services: service csi-proxy does not run: nothing started it"),
    "kube-proxy's program": (
        "network",
        remove(rf"{K}\kube-proxy.exe"),
        rf"services: service kube-proxy does not run: cannot find its program {K}\kube-proxy.exe (error 2)",
    ),
    "flanneld": ("flannel", no_service("flanneld"), "services: service flanneld does not run: it is not in the image"),
    "image": (
        "options",
        lambda machine: machine.images.pop(IMAGE),
        f"images: without a registry, a pod of {IMAGE} does not start: {IMAGE}: ",
    ),
    "no runtime": ("options", stop("containerd"), "images: without a registry, no pod starts: "),
    "plugin's program": (
        "network",
        remove(r"C:\opt\cni\bin\win-bridge.exe"),
        r'pod-network: a pod gets no address: failed to find plugin "win-bridge" in C:\opt\cni\bin',
    ),
    "ipam's program": (
        "network",
        remove(r"C:\opt\cni\bin\host-local.exe"),
        'pod-network: a pod gets no address: failed to find plugin "host-local"',
    ),
    "delegate's program": (
        "flannel",
        remove(r"C:\opt\cni\bin\win-overlay.exe"),
        'pod-network: a pod gets no address: failed to find plugin "win-overlay"',
    ),
    "another network": (
        "network",
        edit(rf"{K}\cni\network.json", '"Name": "', '"Name": "other-'),
        "pod-network: the plugin looks for the network ",
    ),
    "broken configuration": (
        "network",
        lambda machine: machine.files.write(rf"{K}\cni\10-win-bridge.conflist", b"{"),
        rf"pod-network: a pod gets no address: {K}\cni\10-win-bridge.conflist cannot be read: ",
    ),
    "another folder of configurations": (
        "network",
        edit(CONTAINERD, r"conf_dir = 'C:\etc\cni\net.d'", r"conf_dir = 'C:\etc\cni'"),
        r"pod-network: the node has no configuration of a network plugin in C:\etc\cni",
    ),
    "no places": (
        "network",
        remove(rf"{K}\cni\places.txt"),
        rf"pod-network: set-pod-network.ps1 finds no {K}\cni\places.txt",
    ),
    "hyper-v's service": ("flannel", stop("vmms"), "hyper-v: the service of Hyper-V does not run (N13)"),
    "hypervisor": (
        "flannel",
        lambda machine: setattr(machine.features, "nests", False),
        "hyper-v: the hypervisor does not run, so no pod can be isolated (N13)",
    ),
    "handlers": (
        "flannel",
        edit(CONTAINERD, "runhcs-wcow-hypervisor-", "other-"),
        "handlers: containerd has no handler runhcs-wcow-hypervisor-",
    ),
    "wins": ("wins", stop("rancher-wins"), "wins: service rancher-wins does not run: nothing started it"),
    "wins' pipe": ("wins", edit(WINS, "listen: rancher_wins", "listen: other"), "wins: wins answers at other"),
    "wins' list": ("wins", edit(WINS, "processPaths", "paths"), "wins: wins starts every program that a pod names"),
    "wins' programs": (
        "wins",
        edit(WINS, rf"'{K}\\".removesuffix("\\"), r"'C:\other\\".removesuffix("\\")),
        "wins: wins does not start ",
    ),
    "docker": ("docker", stop("docker"), "docker: service docker does not run: nothing started it"),
    "docker's events": (
        "docker",
        registry(r"HKLM:\SYSTEM\CurrentControlSet\Services\EventLog\Application\docker", "EventMessageFile", "x"),
        "docker: Docker's entries in the event log have no text",
    ),
    "cri-dockerd": ("docker", stop("cri-dockerd"), "docker: service cri-dockerd does not run: nothing started it"),
    "cri-dockerd's flags": (
        "docker",
        registry(_parameters("cri-dockerd"), "AppParameters", "--network-plugin=kubenet"),
        "docker: cri-dockerd runs with --network-plugin=kubenet, expected cni",
    ),
    "a secret in a log": (
        "options",
        lambda machine: machine.files.write(r"C:\token.txt", SECRET),
        r"secrets: a secret of the user data is in C:\token.txt",
    ),
    "a secret in a closed log": (
        "options",
        lambda machine: machine.files.write(r"C:\var\log\kubelet\a.log", SECRET),
        r"secrets: a secret of the user data is in C:\var\log\kubelet\a.log",
    ),
    "a script of one's own": ("own files", remove(AFTER), f"own-files: {AFTER} is missing"),
    "another script": (
        "own files",
        lambda machine: machine.files.write(AFTER, b"other"),
        f"own-files: {AFTER} has other content",
    ),
    "an open script": (
        "own files",
        open_to_users(AFTER, "Modify"),
        f"own-files: others than administrators may change {AFTER} (S-1-5-32-545: Modify)",
    ),
    "a program of one's own": ("own files", remove(TOOL), f"own-files: {TOOL} is missing"),
    "an open folder": (
        "own files",
        lambda machine: [machine.files.access_lists.pop(fold(one)) for one in (TOOL, TOOL.rpartition("\\")[0])],
        f"own-files: others than administrators may change {TOOL} (S-1-5-32-545: Write)",
    ),
    "a debug script": (
        "options",
        remove(rf"{K}\debug\VFP.psm1"),
        rf"own-files: {K}\debug\VFP.psm1 is missing",
    ),
    "kubelet's folder": (
        "options",
        open_to_users(r"C:\var\lib\kubelet"),
        r"closed-folders: others than administrators may read or write C:\var\lib\kubelet (S-1-5-32-545: Read",
    ),
    "providers' folder": (
        "options",
        open_to_users(PROVIDERS),
        f"closed-folders: others than administrators may read or write {PROVIDERS} (S-1-5-32-545: ReadAndExecute)",
    ),
    "folder of tokens": (
        "options",
        open_to_users(r"C:\run\kubeadm"),
        r"closed-folders: others than administrators may read or write C:\run\kubeadm (S-1-5-32-545: ReadAndExecute)",
    ),
    "no record": ("options", remove(RECORD), f"release-record: there is no release record {RECORD}"),
    "record without identity": (
        "options",
        record(lambda found: found.pop("image_id")),
        f"release-record: {RECORD} is no release record: image_id: Field required",
    ),
    "another kubelet": (
        "options",
        lambda machine: machine.files.write(rf"{K}\kubelet.exe", b"MZ"),
        rf"release-record: the release record is wrong: {K}\kubelet.exe has other bytes",
    ),
    "no kubeadm": (
        "options",
        remove(rf"{K}\kubeadm.exe"),
        rf"release-record: the release record is wrong: {K}\kubeadm.exe is not there",
    ),
    "another Windows": (
        "options",
        record(lambda found: found["windows"].update(build=17763)),
        "release-record: the release record is wrong: it says build 17763 of Windows, and the node has 20348",
    ),
    "another product": (
        "options",
        record(lambda found: found["artifacts"]["cloudbase-init"]["product"].update(version="9.9.9")),
        "release-record: the release record is wrong: ",
    ),
    "a program without a name": (
        "options",
        record(lambda found: found["artifacts"].pop("kubelet")),
        r"release-record: the release record is wrong: it does not name c:\k\kubelet.exe, which a service runs",
    ),
    "another digest": (
        "options",
        record(lambda found: found["images"].update({IMAGE: f"sha256:{'0' * 64}"})),
        f"release-record: the release record is wrong: {IMAGE} is not there with the digest sha256:0",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_named(name: str, tmp_path: Path) -> None:
    image, change, fault = SPOILED[name]
    node = dataclasses.replace(booted(image).node)
    node.given = dataclasses.replace(node.given, secrets=(*node.given.secrets, SECRET.decode()))
    (check, *_) = fault.split(":")
    assert find_faults(node, check) == []
    found = find_faults(spoil(node, tmp_path, change), check)
    assert "".join(found).startswith(fault), found


@pytest.mark.parametrize("name", IMAGES)
def test_the_image_comes_up(name: str) -> None:
    assert booted(name).faults == []


def _of_the_first_boot() -> Iterator[tuple[str, dict[str, object], str]]:
    yield "setup", {"setup_failure": None, "ran_complete_script": False}, "setup: the image has no SetupComplete.cmd"
    yield "cloudbase-init", {"version": ""}, "cloudbase-init: cloudbase-init did not run: nothing started its service"
    yield "cloudbase-init", {"started_early": True}, "cloudbase-init: cloudbase-init was started before Windows Setup"
    yield "cloudbase-init", {"crash": "x"}, "cloudbase-init: cloudbase-init did not come to its end: x"
    yield "cloudbase-init", {"is_done": False}, "cloudbase-init: cloudbase-init did not come to its end"
    yield "cloudbase-init", {"restarts_forever": True}, "cloudbase-init: cloudbase-init asks for a restart at every"
    yield "cloudbase-init", {"log": "No metadata service found"}, "cloudbase-init: cloudbase-init found no metadata"
    yield "user-data", {"version": ""}, "user-data: no user data ran, because cloudbase-init did not run"
    yield "user-data", {"log": ""}, "user-data: no user data ran: UserDataPlugin did not run"
    yield "join", {"joins": 0}, "join: kubeadm did not run"
    yield "join", {"join_failure": "unknown flag: --x"}, "join: kubeadm failed: unknown flag: --x (N8)"


@pytest.mark.parametrize(("check", "changes", "fault"), [*_of_the_first_boot()])
def test_what_the_first_boot_lacks_is_named(check: str, changes: dict[str, Any], fault: str) -> None:
    node = booted("options").node
    found = find_faults(dataclasses.replace(node, first=dataclasses.replace(node.first, **changes)), check)
    assert "".join(found).startswith(fault), found


@pytest.mark.parametrize(
    ("check", "changes", "fault"),
    [
        ("node", {"nodes": {}}, "node: no node registered with the cluster"),
        ("node", {"nodes": {"other": ""}}, "node: the cluster has node other, expected "),
        ("secrets", {"consoles": {"COM1": b"abcdef.0123"}}, "secrets: a secret of the user data is in the console on"),
    ],
)
def test_what_is_strange_around_the_machine_is_named(check: str, changes: dict[str, Any], fault: str) -> None:
    node = booted("options").node
    given = dataclasses.replace(node.given, secrets=("abcdef.0123",))
    found = find_faults(dataclasses.replace(node, given=given, **changes), check)
    assert "".join(found).startswith(fault), found


def test_every_check_has_an_image_to_which_it_applies() -> None:
    made = {verdict.check.name for name in IMAGES for verdict in judge(booted(name).node)}
    assert {check.name for check in CHECKS} - made == {"signed-scripts"}
    asked = {fault.partition(":")[0] for _, _, fault in SPOILED.values()} | {row[0] for row in _of_the_first_boot()}
    assert made - asked == {"ready", "host-name", "node", "second-boot"}
