"""`kubeadm join` on the model machine, taken as run: it leaves the files of its minor, starts kubelet, and the node is
in the cluster. What kubeadm and kubelet do beside that is not checked here.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import minor as minor_of
from imagegen.config.yaml import parse_yaml
from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.script_policy import find_refusal
from imagegen.rehearsal.node.facts import is_within, read_facts, read_version
from imagegen.rehearsal.node.kubelet import find_refusals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.boot.model import Process, Program
    from imagegen.rehearsal.machine.windows import Machine

_KIND: Final = "JoinConfiguration"
_GROUP: Final = "kubeadm.k8s.io/"
_SERVICE: Final = "kubelet"
_FLAGS: Final = "kubeadm-flags.env"
_ARGUMENTS_FILE: Final = re.compile(r"(?i)-ArgumentsFile (\S+)")
_NOT_RUN: Final = "what kubeadm and kubelet do: the join was taken as run"
_SCRIPT: Final = re.compile(r"(?i)-File (\S+)")
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_STATE: Final = "taken as run by a rehearsal\n"


class _JoinError(Exception):
    """kubeadm ends with an error."""


@dataclasses.dataclass(frozen=True)
class _Configuration:
    """The parts of a JoinConfiguration that decide what the join leaves."""

    name: str
    socket: str
    arguments: tuple[str, ...]


def make_kubeadm(nodes: dict[str, str], sockets: Sequence[str], unchecked: list[str]) -> Program:
    """kubeadm.exe, which adds to `nodes` the address that kubelet is told, by the node's name. `sockets` are those of
    the machine's container runtime. `unchecked` gets what is taken as run."""

    def run(process: Process) -> Ended:
        try:
            nodes.update(_join(process, sockets))
            unchecked.extend((_NOT_RUN, f"what the script {_find_script(process.machine)} does"))
        except (_JoinError, RefusedByWindows) as error:
            return Ended(1, f"error execution phase kubelet-start: {error}\n")
        return Ended(0, "This node has joined the cluster\n")

    return run


def _join(process: Process, sockets: Sequence[str]) -> dict[str, str]:
    machine, words = process.machine, list(process.arguments)
    if words[1:3] != ["join", "--config"]:
        raise UnknownCommandError(f"the rehearsal does not know what 'kubeadm {' '.join(words[1:3])}' does")
    minor = minor_of(read_version(machine.files, words[0]))
    found = _read_configuration(machine, full_path(process.folder, words[3]), minor)
    if found.socket not in sockets:
        raise _JoinError(f"no container runtime of the image answers at criSocket {found.socket}")
    arguments = (*_read_arguments(machine), *found.arguments)
    for refusal in find_refusals(arguments, minor):
        raise _JoinError(f"kubelet does not run: {refusal}")
    for path, (first, last) in read_facts("join")["files"].items():
        if is_within(minor, first, last):
            machine.files.make_folder(parent(path))
            machine.files.write(path, _content(path, found).encode())
    if why := find_refusal(machine, _find_script(machine)):
        raise _JoinError(f"kubelet does not run: {_find_script(machine)} cannot be loaded: {why}")
    machine.services.stop(_SERVICE)
    machine.services.start(_SERVICE)
    address = [word.partition("=")[2] for word in arguments if word.startswith("--node-ip=")]
    return {found.name: address[-1] if address else ""}


def _find_script(machine: Machine) -> str:
    found = _SCRIPT.search(_command(machine))
    return found[1] if found else ""


def _command(machine: Machine) -> str:
    """The command line of kubelet's service, with what nssm starts for it."""
    parameters = machine.registry.text(rf"{machine.services.key(_SERVICE)}\Parameters", "AppParameters") or ""
    return f"{machine.services.command(_SERVICE)} {parameters}"


def _content(path: str, found: _Configuration) -> str:
    line = " ".join((f"--hostname-override={found.name}", *found.arguments))
    return f'KUBELET_KUBEADM_ARGS="{line}"\n' if path.endswith(_FLAGS) else _STATE


def _read_arguments(machine: Machine) -> list[str]:
    """kubelet's flags in the file of the image."""
    found = _ARGUMENTS_FILE.search(_command(machine))
    return shlex.split(machine.files.read(found[1]).decode(), posix=False) if found else []


def _read_configuration(machine: Machine, path: str, minor: str) -> _Configuration:
    documents = re.split(rb"(?m)^---.*$", machine.files.read(path))
    try:
        read = [parse_yaml(text, path).data for text in documents if text.strip()]
    except ConfigError as error:
        raise _JoinError(f"error converting YAML to JSON: {error}") from error
    joins: list[dict[str, Any]] = [one for one in read if isinstance(one, dict) and one.get("kind") == _KIND]
    if len(joins) != 1:
        raise _JoinError(f"{path} has {len(joins)} documents of kind {_KIND}")
    (data,) = joins
    version = str(data.get("apiVersion", ""))
    row = read_facts("join")["api_versions"].get(version.removeprefix(_GROUP))
    if row is None or not version.startswith(_GROUP) or not is_within(minor, row["first"], row["last"]):
        raise _JoinError(f'no kind "{_KIND}" is registered for version "{version}" in kubeadm {minor}')
    own = data.get("nodeRegistration") or {}
    given = own.get("kubeletExtraArgs") or {}
    pairs = given.items() if isinstance(given, dict) else [(one["name"], one["value"]) for one in given]
    named = [value for name, value in pairs if name == "hostname-override"]
    name = str([own.get("name") or machine.host_name.lower(), *named][-1])
    if not _NAME.fullmatch(name):
        raise _JoinError(f'nodeRegistration.name: Invalid value: "{name}"')
    return _Configuration(name, own.get("criSocket", ""), tuple(f"--{key}={value}" for key, value in pairs))
