"""What set-pod-network.ps1 does on the model machine. The model was compared with the bytes of one digest only."""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import json
import ntpath
import re
from typing import TYPE_CHECKING

from imagegen.base.contents import SHIPPED
from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.hns import NODE_ADDRESS, NODE_NETWORK, Endpoint, Network
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.services import AUTOMATIC
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.node_module import need_module
from imagegen.rehearsal.node.start_script import read_kubeadm_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.base.contents import Contents
    from imagegen.rehearsal.boot.model import Process, Program
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster

_SCRIPT = "cni/files/set-pod-network.ps1"
# Compare the functions below with a changed script before you take over its digest.
SHA256 = "b5da22dbeb7816236a52baadbd1f7cbb904891f81986da7f9b0aaafd1db26463"
_LIMIT_S, _TURN_S = 300.0, 5.0
_RANGE = re.compile(r"[0-9.]+/([1-9]|[12][0-9])")
_OPTIONAL = ("network.json", "services.txt", "pod-range.txt")
_NEEDS_RANGE = re.compile("<(POD_CIDR|GATEWAY|ENDPOINT|FIRST_POD)>")
_PARAMETERS = {
    "clustercidr": "",
    "servicecidr": "",
    "podcidr": "",
    "networkname": "",
    "sourcevip": "",
    "statefolder": r"C:\var\lib\kubelet",
    "configfolder": r"C:\etc\kubernetes",
}


def pod_network_scripts(cluster: Cluster, contents: Contents = SHIPPED) -> dict[bytes, Program]:
    """The script as it is shipped, for machines that reach this cluster."""
    paths = [root.folder / _SCRIPT for root in contents.step_roots]
    shipped = [path.read_bytes() for path in paths if path.is_file()]
    known = make_program(cluster)
    return {data: known if hashlib.sha256(data).hexdigest() == SHA256 else _refuse for data in shipped}


def _refuse(process: Process) -> Ended:
    raise UnknownCommandError(f"{process.arguments[0]} is not the script that the rehearsal has a model of")


def make_program(cluster: Cluster) -> Program:
    """The script, as a program whose first argument is its own path."""
    return lambda process: _run(process, cluster)


class _ScriptError(Exception):
    """The script throws."""


def _run(process: Process, cluster: Cluster) -> Ended:
    try:
        need_module(process.machine, process.arguments[0])
        given = _read_parameters(process.arguments[1:])
        _set(process.machine, cluster, ntpath.dirname(process.arguments[0]), given)
    except (_ScriptError, RefusedByWindows) as error:
        return Ended(1, f"set-pod-network: {error}\r\n")
    return Ended(0)


def _read_parameters(arguments: Sequence[str]) -> dict[str, str]:
    given = dict(_PARAMETERS)
    for name, value in zip(arguments[::2], arguments[1::2], strict=False):
        known = name.removeprefix("-").lower()
        if not name.startswith("-") or known not in _PARAMETERS:
            raise _ScriptError(f"a parameter cannot be found that matches parameter name '{name}'")
        given[known] = value
    if len(arguments) % 2:
        raise _ScriptError(f"missing an argument for parameter '{arguments[-1]}'")
    return given


def _set(machine: Machine, cluster: Cluster, folder: str, given: Mapping[str, str]) -> None:
    node = _find_name(machine, given)
    texts = _read_templates(machine, rf"{folder}\cni")
    needed = any(_NEEDS_RANGE.search(text) for text in texts.values())
    pod_cidr = given["podcidr"]
    if not needed:
        pod_cidr = given["clustercidr"]
    elif not pod_cidr:
        field = texts.get("pod-range.txt", "{.spec.podCIDR}").strip()
        pod_cidr = _ask(machine, cluster, folder, {**given, "field": field}, node)
    if not given["networkname"] and any("<NETWORK>" in text for text in texts.values()):
        raise _ScriptError("-NetworkName is required: the image does not know the name of the pod network")
    for one in (given["clustercidr"], given["servicecidr"], pod_cidr):
        if not _is_range(one):
            raise _ScriptError(f"'{one}' is not an IPv4 range such as 10.244.0.0/16")
    base = ipaddress.ip_address(pod_cidr.partition("/")[0])
    values = {
        "<CLUSTER_CIDR>": given["clustercidr"],
        "<SERVICE_CIDR>": given["servicecidr"],
        "<POD_CIDR>": pod_cidr,
        "<GATEWAY>": str(base + 1),
        "<ENDPOINT>": str(base + 2),
        "<FIRST_POD>": str(base + 3),
        "<NETWORK>": given["networkname"],
        "<SOURCE_VIP>": given["sourcevip"],
        "<NODE_NAME>": node,
        "<NODE_ADDRESS>": NODE_ADDRESS,
        "<NODE_NETWORK>": NODE_NETWORK,
    }
    texts = {name: _fill(text, values) for name, text in texts.items()}
    if "network.json" in texts:
        _create_network(machine, texts["network.json"], values["<ENDPOINT>"])
        machine.files.write(rf"{folder}\pod-network.json", texts["network.json"].encode())
    for line in filter(None, texts["places.txt"].splitlines()):
        file, _, path = line.partition(" ")
        machine.files.make_folder(parent(path))
        machine.files.write(path, texts[file].encode())
    for line in filter(None, texts.get("services.txt", "").splitlines()):
        _start(machine, line)


def _is_range(text: str) -> bool:
    try:
        return bool(_RANGE.fullmatch(text) and ipaddress.IPv4Network(text))
    except ValueError:
        return False


def _read_templates(machine: Machine, folder: str) -> dict[str, str]:
    if not machine.files.is_folder(folder):
        raise _ScriptError(f"Could not find a part of the path '{folder}'.")
    places = machine.files.read(rf"{folder}\places.txt").decode()
    named = ["places.txt", *(line.partition(" ")[0] for line in places.splitlines() if line)]
    named += [name for name in _OPTIONAL if machine.files.is_file(rf"{folder}\{name}")]
    return {name: machine.files.read(rf"{folder}\{name}").decode() for name in named}


def _fill(text: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        text = text.replace(key, value)
    return text


def _start(machine: Machine, line: str) -> None:
    """Start a service now, and at each start of Windows. What nssm starts for it gets a flag or an environment."""
    service, _, rest = line.partition(" ")
    value, _, text = rest.partition(" ")
    key = rf"{machine.services.key(service)}\Parameters"
    if value and not machine.registry.has_key(key):
        raise _ScriptError(f"Cannot find path '{key}' because it does not exist.")
    if value:
        given = Value("ExpandString", text) if value == "AppParameters" else Value("MultiString", (*text.split("|"),))
        machine.registry.write(key, value, given)
    machine.services.configure(service, "Start", Value("DWord", AUTOMATIC))
    machine.services.stop(service)
    machine.services.start(service)


def _find_name(machine: Machine, given: Mapping[str, str]) -> str:
    flags = rf"{given['statefolder']}\kubeadm-flags.env"
    if not machine.files.is_file(flags):
        raise _ScriptError(f"this machine has not joined a cluster: there is no {flags}")
    words = read_kubeadm_arguments(machine, flags)
    named = [word.partition("=")[2] for word in words if word.startswith("--hostname-override=")]
    return (named[-1] if named else machine.host_name).strip().lower()


def _ask(machine: Machine, cluster: Cluster, folder: str, given: Mapping[str, str], name: str) -> str:
    """What kubectl prints for the node's range."""
    if not machine.files.is_file(rf"{folder}\kubectl.exe"):
        raise _ScriptError("The system cannot find the file specified")
    found: list[str] = []

    def has_range() -> bool:
        path = rf"{given['configfolder']}\kubelet.conf"
        found[:] = [_read_range(machine, cluster, path, name, given["field"])]
        return bool(found[0])

    end = machine.up_s + _LIMIT_S
    while not has_range():
        if machine.up_s >= end:
            raise _ScriptError(f"the cluster gave node {name} no range of pod addresses in {_LIMIT_S:.0f} seconds")
        machine.wait_until(lambda: False, _TURN_S)
    return found[0]


def _read_range(machine: Machine, cluster: Cluster, path: str, name: str, field: str) -> str:
    """What kubectl prints for the field of the node. Dots within a name have a backslash."""
    names = [part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", field.strip("{}").removeprefix("."))]
    try:
        access = read_kubeconfig(machine.files.read(path), path)
        file = machine.files.host_path(access.certificate_file)
        client = ApiClient(cluster, access.server, access.authority, certificate_file=file)
        node = client.get(f"/api/v1/nodes/{name}")
        return str(functools.reduce(lambda value, key: value.get(key, {}), names, node) or "")
    except (ApiError, ValueError, RefusedByWindows):
        return ""


def _create_network(machine: Machine, request: str, endpoint: str) -> None:
    try:
        wanted = json.loads(request)
    except ValueError as error:
        raise _ScriptError(f"Invalid JSON primitive: {error}") from error
    name, subnet = wanted["Name"], wanted["Subnets"][0]
    there = machine.hns.find(name)
    if there is not None and there.subnet != subnet["AddressPrefix"]:
        raise _ScriptError(f"the network {name} has the range {there.subnet}, not {subnet['AddressPrefix']}")
    if there is None:
        vsids = [policy["VSID"] for policy in subnet.get("Policies", ()) if policy["Type"] == "VSID"]
        network = Network(name, wanted["Type"], subnet["AddressPrefix"], subnet["GatewayAddress"], *vsids)
        machine.hns.create(network)
    if wanted["Type"] == "L2Bridge" and f"{name}_ep" not in machine.hns.endpoints:
        machine.hns.attach(Endpoint(f"{name}_ep", name, endpoint))
