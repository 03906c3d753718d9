"""What must be so about kubeadm, kubelet and the node in the cluster."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ConfigError
from imagegen.boot.check import Check, say
from imagegen.boot.cloudbase_init import HOST_NAME_PLUGIN, plugin_ends, read_text, wanted_node
from imagegen.boot.guarded import layout_of
from imagegen.boot.log import USER_DATA
from imagegen.config.yaml import parse_yaml
from imagegen.steps.accounts import TRUSTED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.boot.node import Finding, Node

# https://kubernetes.io/docs/reference/networking/ports-and-protocols/#node
_PORT: Final = 10250
_CHANGES: Final = ("CreateFiles, AppendData", "Modify", "FullControl")
_ARGUMENTS_FILE: Final = re.compile(r"(?i)-ArgumentsFile (\S+)")
# What kubeadm and kubelet say, and its row.
_ROWS_OF_MESSAGES: Final = ((re.compile(r"unknown feature gate"), "N7"), (re.compile(r"unknown flag"), "N8"))


def _join(node: Node) -> Iterator[Finding]:
    if not node.first.joins:
        yield say("kubeadm did not run")
    elif said := node.first.join_failure:
        row = next((row for form, row in _ROWS_OF_MESSAGES if form.search(said)), "")
        yield say(f"kubeadm failed: {said}", row)


def _kubelet(node: Node) -> Iterator[Finding]:
    service = node.service("kubelet")
    if service is None or service.failure or not service.is_running:
        why = f": {service.failure}" if service and service.failure else ""
        yield say(f"kubelet does not run{why}")
        return
    if not node.lets_in(_PORT):
        yield say("Windows' firewall blocks TCP port 10250, where the API server asks kubelet for logs and metrics")
    pods = rf"{layout_of(node.spec)['kubelet']}\pods"
    given = [one for one in node.access(pods) if one.path.lower() == pods.lower() and one.sid not in TRUSTED]
    if not any(one.rights in _CHANGES for one in given):
        yield say("containers may not write to their volumes, which are in kubelet's folder pods")


def _node(node: Node) -> Iterator[Finding]:
    wanted, names = wanted_node(node), tuple(node.nodes)
    if names == (wanted,):
        if (address := node.nodes[wanted]) and address not in node.addresses:
            yield say(f"the cluster does not know the address {address} of --node-ip: no network card has it")
        return
    if not names:
        yield say("no node registered with the cluster")
        return
    order = list(plugin_ends(node))
    if HOST_NAME_PLUGIN in order and USER_DATA in order and order.index(USER_DATA) < order.index(HOST_NAME_PLUGIN):
        early = "the machine joined before it had its name"
        yield say(f"{early}: {USER_DATA} is before {HOST_NAME_PLUGIN} in the list of plugins")
    yield say(f"the cluster has node {', '.join(names)}, expected {wanted}")


def read_arguments(node: Node) -> dict[str, str]:
    """kubelet's flags in the file of the image. Of a repeated one the last counts."""
    service = node.service("kubelet")
    found = _ARGUMENTS_FILE.search(f"{service.command} {service.parameters}" if service else "")
    flags = shlex.split(read_text(node, found[1]), posix=False) if found else []
    return dict(word.lstrip("-").partition("=")[::2] for word in flags)


def _credential_providers(node: Node) -> Iterator[Finding]:
    flags = read_arguments(node)
    path, folder = (flags.get(f"image-credential-provider-{name}", "") for name in ("config", "bin-dir"))
    try:
        data = parse_yaml(node.read(path) or b"", path).data if path else {}
        known = [one["name"] for one in data["providers"]]
    except (ConfigError, KeyError, TypeError):
        known = []
    for provider in node.spec.config.credential_providers:
        if provider.name not in known:
            yield say(f"kubelet does not know the credential provider {provider.name}", "N14")
        elif node.read(rf"{folder}\{provider.name}.exe") is None:
            yield say(f"kubelet cannot start the credential provider {provider.name}: its program is missing", "N14")


CHECKS: Final = (
    Check("join", "the user data ran kubeadm join, and it reported no failure", _join),
    Check("kubelet", "kubelet's service runs, and the cluster and containers reach it", _kubelet),
    Check("node", "the cluster has the node under the name that kubelet gives it", _node),
    Check(
        "credential-providers",
        "kubelet has the credential providers of the config, and can start them",
        _credential_providers,
        lambda spec: bool(spec.config.credential_providers),
    ),
)
