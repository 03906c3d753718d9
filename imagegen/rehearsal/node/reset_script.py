"""What reset-node.ps1 does on the model machine. The model was compared with the bytes of one digest only."""

from __future__ import annotations

import dataclasses
import hashlib
import ntpath
from typing import TYPE_CHECKING, Final

from imagegen.base.contents import SHIPPED
from imagegen.catalog.facts import minor as minor_of
from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.machine.access import ADMINISTRATORS, CREATOR_OWNER, SYSTEM, USERS, write
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.kinds.files import make_entry
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import MANUAL
from imagegen.rehearsal.node.facts import SERVICE, read_version
from imagegen.rehearsal.node.node_module import need_module
from imagegen.rehearsal.node.reset import run_reset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.base.contents import Contents
    from imagegen.rehearsal.boot.model import Process, Program
    from imagegen.rehearsal.machine.windows import Machine

_SCRIPT: Final = "kubernetes/files/reset-node.ps1"
# Compare the functions below with a changed script before you take over its digest.
SHA256: Final = "6f7803e5043f8c10b934f231c0e28966f5f1d68e233b7c19ccf6efc5833d2da1"
_SERVICES: Final = ("kube-proxy", "flanneld", "hybrid-overlay-node", "CalicoFelix", "CalicoNode")
_KEPT: Final = ("credential-provider", "credential-provider-config.yaml")
_NETWORKS: Final = ("L2Bridge", "L2Tunnel", "Overlay")
_RIGHTS: Final = (
    *((SYSTEM, "full"), (ADMINISTRATORS, "full"), (CREATOR_OWNER, "full"), (USERS, "read"), (USERS, "create")),
)
_STATE: Final = r"C:\var\lib\kubelet"
_CONFIGURATIONS: Final = r"C:\etc\cni\net.d"
_SUBNET, _ADDRESSES = r"C:\run\flannel\subnet.env", r"C:\var\lib\cni\networks"
_ENDPOINT: Final = "npipe:////./pipe/containerd-containerd"


def reset_scripts(contents: Contents = SHIPPED) -> dict[bytes, Program]:
    """The script as it is shipped."""
    paths = [root.folder / _SCRIPT for root in contents.step_roots]
    shipped = [path.read_bytes() for path in paths if path.is_file()]
    return {data: _run if hashlib.sha256(data).hexdigest() == SHA256 else _refuse for data in shipped}


def _refuse(process: Process) -> Ended:
    raise UnknownCommandError(f"{process.arguments[0]} is not the script that the rehearsal has a model of")


def _run(process: Process) -> Ended:
    machine, endpoint = process.machine, _read_endpoint(process.arguments[1:])
    try:
        need_module(machine, process.arguments[0])
        _stop_services(machine)
        kept = _take_away(machine)
        ended = _reset(process, endpoint)
        for place, rights in ((_STATE, _RIGHTS[:2]), (rf"{_STATE}\pods", _RIGHTS)):
            machine.files.make_folder(place)
            entries = [make_entry(sid, right, is_folder=True) for sid, right in rights]
            write(machine.files, place, entries, protected=True)
        for path, data in kept.items():
            machine.files.make_folder(parent(path))
            machine.files.write(path, data)
        if ended.exit_code:
            return Ended(1, f"reset-node: kubeadm.exe ended with {ended.exit_code}: {ended.output}\r\n")
        _clear_networks(machine, ntpath.dirname(process.arguments[0]))
    except RefusedByWindows as refusal:
        return Ended(1, f"reset-node: {refusal}\r\n")
    return ended


def _read_endpoint(arguments: Sequence[str]) -> str:
    if not arguments:
        return _ENDPOINT
    name, endpoint = arguments
    if name.lower() != "-runtimeendpoint":
        raise UnknownCommandError(f"reset-node.ps1 has no parameter {name}")
    return endpoint


def _stop_services(machine: Machine) -> None:
    for name in (SERVICE, *_SERVICES):
        if machine.services.exists(name):
            if name != SERVICE:
                machine.services.configure(name, "Start", Value("DWord", MANUAL))
            machine.services.stop(name)


def _take_away(machine: Machine) -> dict[str, bytes]:
    """The files that the image has in kubelet's folder. They inherit its rights, before and afterwards."""
    files, kept = machine.files, dict[str, bytes]()
    for path in (rf"{_STATE}\{name}" for name in _KEPT):
        if files.exists(path):
            kept |= {one: files.read(one) for one in (files.below(path) if files.is_folder(path) else [path])}
            files.remove(path)
    return kept


def _reset(process: Process, endpoint: str) -> Ended:
    program = rf"{ntpath.dirname(process.arguments[0])}\kubeadm.exe"
    arguments = ("--force", "--cri-socket", endpoint)
    started = dataclasses.replace(process, arguments=(program, "reset", *arguments), folder="C:\\")
    return run_reset(started, arguments, minor_of(read_version(process.machine.files, program)))


def _clear_networks(machine: Machine, folder: str) -> None:
    names = machine.files.names(_CONFIGURATIONS) if machine.files.is_folder(_CONFIGURATIONS) else []
    listed = rf"{folder}\cni\state.txt"
    state = machine.files.read(listed).decode().splitlines() if machine.files.is_file(listed) else []
    for path in (*(rf"{_CONFIGURATIONS}\{name}" for name in names), *state, rf"{folder}\pod-network.json", _SUBNET):
        if machine.files.is_file(path):
            machine.files.remove(path)
    if machine.files.is_folder(_ADDRESSES):
        machine.files.remove(_ADDRESSES)
    machine.hns.check_answers()
    for network in [one for one in machine.hns.networks.values() if one.type in _NETWORKS]:
        machine.hns.remove(network.name)
