"""A machine as the steps leave it, a cluster for it, and the user data of a node that joins."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.base.contents import ROLES
from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers
from imagegen.rehearsal.boot.model import Ended, Process
from imagegen.rehearsal.machine import stock_windows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC, FailureActions
from imagegen.rehearsal.machine.windows import ENVIRONMENT
from imagegen.rehearsal.node.kubeadm import make_kubeadm
from imagegen.rehearsal.node.kubelet import PIPE_TIMEOUT

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

SCRIPT = (ROLES / "kubernetes" / "files" / "start-kubelet.ps1").read_bytes()
CONFIG = r"C:\run\kubeadm\kubeadm-join-config.yaml"
FLAGS = r"C:\var\lib\kubelet\kubeadm-flags.env"
KUBEADM = r"C:\k\kubeadm.exe"
ARGUMENTS = r"C:\k\kubelet-arguments.txt"
LOG = r"C:\var\log\kubelet\kubelet.log"
HOST = "WIN-ABC123"
TOKEN = "abcdef.0123456789abcdef"  # noqa: S105 - the one of kubeadm's documentation


def make_machine(root: Path, version: str, *, script: bytes = SCRIPT) -> Machine:
    """Services containerd and kubelet with their files, after a restart: kubelet has found no cluster."""
    machine = _stock_machine()[1].copy(root)
    machine.features.install("Containers")
    files = machine.files
    for folder in (
        *(r"C:\k", r"C:\containerd", r"C:\var\lib\kubelet\pods", r"C:\var\log\kubelet", r"C:\run\kubeadm"),
        *(r"C:\run\cluster-api", r"C:\etc\kubernetes\manifests", r"C:\etc\kubernetes\pki"),
    ):
        files.make_folder(folder)
    for program in ("kubelet", "kubeadm", "kube-log-runner"):
        write_program(machine, program, version)
    files.write(r"C:\k\start-kubelet.ps1", script)
    files.write(r"C:\k\common.psm1", b"")
    authority = b"" if _writes_drives(version) else b"--client-ca-file=C:\\etc\\kubernetes\\pki\\ca.crt\n"
    files.write(ARGUMENTS, authority)
    files.write(r"C:\containerd\containerd.exe", b"MZ")
    path = machine.registry.text(ENVIRONMENT, "Path")
    machine.registry.write(ENVIRONMENT, "Path", Value("ExpandString", rf"{path};C:\k"))
    machine.registry.make_key(PIPE_TIMEOUT[0])
    machine.registry.write(*PIPE_TIMEOUT, Value("DWord", 120_000))
    machine.services.create("containerd", r"C:\containerd\containerd.exe --run-service", "containerd", AUTOMATIC)
    machine.services.create("kubelet", kubelet_command(), "kubelet", AUTOMATIC, depends_on=["containerd"])
    recovery = FailureActions(86_400, ((1, 10_000),) * 3)
    machine.services.configure("kubelet", "FailureActions", Value("Binary", recovery.pack()))
    machine.set_host_name(HOST)
    return machine


@functools.cache
def _stock_machine() -> tuple[tempfile.TemporaryDirectory[str], Machine]:
    """A stock machine to copy, which is faster than to set one up, and the folder of its disk as long as it is used."""
    folder = tempfile.TemporaryDirectory(prefix="imagegen-stock-")
    return folder, stock_windows(Path(folder.name), release="2022", cloud="aws")


def write_program(machine: Machine, name: str, version: str) -> None:
    text = f"MZ a stand-in for bin/windows/amd64/{name}.exe {version}, made for a rehearsal\n"
    machine.files.write(rf"C:\k\{name}.exe", text.encode())


def kubelet_command() -> str:
    """As the step kubernetes writes it."""
    return (
        r"C:\k\kube-log-runner.exe --log-file=C:\var\log\kubelet\kubelet.log "
        r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe -NoProfile -NonInteractive"
        r" -ExecutionPolicy Bypass -File C:\k\start-kubelet.ps1 -Kubelet C:\k\kubelet.exe"
        rf" -StateFolder C:\var\lib\kubelet -ConfigFolder C:\etc\kubernetes -ArgumentsFile {ARGUMENTS}"
    )


def _writes_drives(version: str) -> bool:
    """Whether kubeadm gives kubelet's paths a drive. If not, the image names the file of the authority."""
    return numbers(minor_of(version)) >= (1, 23)


def join_config(
    cluster: Cluster, *, version: str = "v1beta4", name: str = "ip-10-0-0-7.ec2.internal", **changes: str
) -> str:
    """The configuration that Cluster API's user data writes. `changes` replace lines of it by their first word."""
    arguments = {"cloud-provider": "external", "provider-id": "aws:///us-east-1a/i-0123456789abcdef0"}
    as_list = "".join(f"  - name: {key}\n    value: {value}\n" for key, value in arguments.items())
    as_map = "".join(f"    {key}: {value}\n" for key, value in arguments.items())
    text = f"""---
apiVersion: kubeadm.k8s.io/{version}
discovery:
  bootstrapToken:
    apiServerEndpoint: {cluster.endpoint}
    caCertHashes:
    - {cluster.ca_cert_hash}
    token: {cluster.token}
kind: JoinConfiguration
nodeRegistration:
  criSocket: npipe:////./pipe/containerd-containerd
  kubeletExtraArgs:
{as_list if version == "v1beta4" else as_map}  name: {name}
  taints:
  - effect: NoSchedule
    key: os
    value: windows
"""
    for key, line in changes.items():
        [old] = [known for known in text.splitlines() if known.strip().removeprefix("- ").startswith(key)]
        text = text.replace(f"{old}\n", f"{line}\n" if line else "")
    return text


def run_kubeadm(
    machine: Machine,
    cluster: Cluster,
    config: str,
    *arguments: str,
    user: str = "SYSTEM",
    folder: str = r"C:\Windows\System32",
) -> Ended:
    """`kubeadm join --config` with this configuration, as the user data's command does it."""
    machine.files.write(CONFIG, config.encode())
    words = (KUBEADM, "join", "--config", "/run/kubeadm/kubeadm-join-config.yaml", *(arguments or ("--v", "5")))
    return make_kubeadm(cluster)(Process(machine, words, folder, user))
