"""What `kubeadm upgrade node` does on a worker (cmd/kubeadm/app/cmd/phases/upgrade/node of kubernetes/kubernetes): it
reads kubelet's configuration from the cluster again, as the node. kubelet itself is replaced by people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.cluster_settings import make_kubelet_config, read_cluster_settings, read_kubelet_config
from imagegen.rehearsal.node.decode import KubeadmError
from imagegen.rehearsal.node.join import CLIENT, KUBELET
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.preflight import find_privilege_faults
from imagegen.rehearsal.node.yaml_text import read_yaml_map, yaml_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.boot.model import Process
    from imagegen.rehearsal.node.api_server import Cluster


def run_upgrade(process: Process, cluster: Cluster, arguments: Sequence[str], minor: str) -> Ended:
    """Run the command, with no option."""
    if list(arguments) != ["node"]:
        raise UnknownCommandError(f"kubeadm upgrade {' '.join(arguments)}: the rehearsal knows `upgrade node` only")
    for name, message in find_privilege_faults(process, minor):
        return Ended(1, f"[preflight] Some fatal errors occurred:\n\t[ERROR {name}]: {message}")
    try:
        _write_config(process, cluster, minor)
    except (KubeadmError, ApiError, RefusedByWindows, ValueError) as error:
        return Ended(1, f"error execution phase kubelet-config: {error}")
    return Ended(0, "[upgrade] Now you should go ahead and upgrade the kubelet package using your package manager.\n")


def _write_config(process: Process, cluster: Cluster, minor: str) -> None:
    files, path = process.machine.files, full_path(process.folder, CLIENT)
    access = read_kubeconfig(files.read(path), path)
    certificate = files.host_path(access.certificate_file)
    client = ApiClient(cluster, access.server, access.authority, certificate_file=certificate)
    settings = read_cluster_settings(client, minor)
    shared = read_kubelet_config(client, minor, settings["kubernetesVersion"])
    # Newer ones keep the socket of this node in a file of its own.
    own = full_path(process.folder, f"{KUBELET}/instance-config.yaml")
    socket = read_yaml_map(files.read(own), own).get("containerRuntimeEndpoint", "") if files.is_file(own) else ""
    config = make_kubelet_config(shared, minor, process.arguments[0][:2], socket)
    files.write(full_path(process.folder, f"{KUBELET}/config.yaml"), yaml_text(config).encode())
