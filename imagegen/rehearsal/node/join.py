"""What `kubeadm join` does to a machine: files below /etc/kubernetes and /var/lib/kubelet, and the service kubelet.

Paths without a drive are on the drive of kubeadm's current folder, as in kubeadm itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.cluster_settings import (
    SYSTEM_MAPS,
    make_kubelet_config,
    read_cluster_settings,
    read_kubelet_config,
)
from imagegen.rehearsal.node.decode import KubeadmError
from imagegen.rehearsal.node.discovery import discover
from imagegen.rehearsal.node.facts import SERVICE, reached
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig, write_kubeconfig
from imagegen.rehearsal.node.kubelet_flags import flags_file, registered_name
from imagegen.rehearsal.node.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.boot.model import Process
    from imagegen.rehearsal.node.api_server import Cluster
    from imagegen.rehearsal.node.join_config import JoinConfiguration
    from imagegen.rehearsal.node.kubeconfig import Access

KUBERNETES, KUBELET = "/etc/kubernetes", "/var/lib/kubelet"
BOOTSTRAP = f"{KUBERNETES}/bootstrap-kubelet.conf"
CLIENT = f"{KUBERNETES}/kubelet.conf"
_SOCKET_ANNOTATION = "kubeadm.alpha.kubernetes.io/cri-socket"
# kubeadm takes milliseconds between two files. Here it takes longer than a script that looks for them in turns, so that
# a start in the middle of a join falls between them.
_BETWEEN_FILES_S = 1.5
# kubeadm waits so long for a service that it started or stopped, and then only warns.
_SERVICE_S = 10.0
_API_RETRY_S = 0.5


@dataclasses.dataclass
class Output:
    """What kubeadm prints."""

    lines: list[str] = dataclasses.field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def warn(self, message: str) -> None:
        self.lines.append(f"W kubeadm] {message}")

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


@dataclasses.dataclass(frozen=True)
class _Fetched:
    """What kubeadm read from the cluster."""

    access: Access
    cluster_name: str
    repository: str
    socket_is_in_config: bool
    kubelet_config: dict[str, Any]


class Join:
    """One run of `kubeadm join`, after its checks of the machine. Each step raises KubeadmError."""

    def __init__(
        self, process: Process, cluster: Cluster, minor: str, configuration: JoinConfiguration, output: Output
    ) -> None:
        self._process = process
        self._machine = process.machine
        self._cluster = cluster
        self._minor = minor
        self._configuration = configuration
        self._output = output
        self._fetched: _Fetched | None = None

    def fetch(self) -> None:
        """Find the cluster and read its configuration. Nothing on the machine changes."""
        try:
            access = discover(self._machine, self._cluster, self._configuration)
        except KubeadmError as error:
            raise KubeadmError(f"couldn't validate the identity of the API Server: {error}") from error
        client = ApiClient(self._cluster, access.server, access.authority, access.token)
        try:
            settings = read_cluster_settings(client, self._minor)
            # Its content matters on control planes only, and it may be missing.
            with contextlib.suppress(ApiError):
                client.get(f"{SYSTEM_MAPS}/kube-proxy")
            kubelet_config = read_kubelet_config(client, self._minor, settings["kubernetesVersion"])
        except ApiError as error:
            raise KubeadmError(
                f"unable to fetch the kubeadm-config ConfigMap: failed to get config map: {error}"
            ) from error
        gates = settings.get("featureGates") or {}
        self._fetched = _Fetched(
            access,
            settings.get("clusterName", "kubernetes"),
            settings.get("imageRepository", ""),
            bool(gates.get("NodeLocalCRISocket", reached(self._minor, "socket_in_instance_config"))),
            kubelet_config,
        )

    def phases(self) -> list[tuple[str, Callable[[], None]]]:
        """The phases that follow, by kubeadm's names."""
        if reached(self._minor, "waits_in_a_phase_of_its_own"):
            return [("kubelet-start", self._configure), ("kubelet-wait-bootstrap", self._wait_and_clean_up)]
        return [("kubelet-start", self._configure_and_wait)]

    def _configure_and_wait(self) -> None:
        try:
            self._configure()
            self._wait()
        finally:
            if reached(self._minor, "removes_bootstrap_file"):
                self._remove_bootstrap_file()

    def _wait_and_clean_up(self) -> None:
        try:
            self._wait()
        finally:
            self._remove_bootstrap_file()

    def _remove_bootstrap_file(self) -> None:
        path = self._path(BOOTSTRAP)
        if self._machine.files.exists(path):
            self._machine.files.remove(path)

    def _path(self, path: str) -> str:
        return full_path(self._process.folder, path)

    def _need(self) -> _Fetched:
        if self._fetched is None:
            raise RuntimeError("fetch comes first")
        return self._fetched

    def _configure(self) -> None:
        fetched = self._need()
        user = "tls-bootstrap-token-user"
        context = f"{user}@{fetched.cluster_name}"
        kubeconfig = write_kubeconfig(fetched.access, cluster=fetched.cluster_name, user=user, context=context)
        self._write(BOOTSTRAP, kubeconfig)
        if not self._machine.files.exists(self._path(self._configuration.ca_path)):
            self._write(self._configuration.ca_path, fetched.access.authority)
        if reached(self._minor, "looks_for_node"):
            self._check_node_is_free(fetched.access)
        self._stop_kubelet()
        if fetched.socket_is_in_config:
            endpoint = f'containerRuntimeEndpoint: "{self._configuration.cri_socket}"\n'
            self._write(f"{KUBELET}/instance-config.yaml", endpoint.encode())
        socket = self._configuration.cri_socket if fetched.socket_is_in_config else ""
        config = make_kubelet_config(fetched.kubelet_config, self._minor, self._process.arguments[0][:2], socket)
        self._write(f"{KUBELET}/config.yaml", yaml_text(config).encode())
        self._machine.wait_until(lambda: False, _BETWEEN_FILES_S)
        flags = flags_file(
            self._configuration,
            self._minor,
            host_name=self._machine.host_name,
            repository=fetched.repository,
            socket_is_in_config=fetched.socket_is_in_config,
        )
        self._write(f"{KUBELET}/kubeadm-flags.env", flags)
        self._restart_kubelet()

    def _write(self, path: str, data: bytes) -> None:
        self._machine.files.make_folder(parent(self._path(path)))
        self._machine.files.write(self._path(path), data)
        self._output.say(f'[kubelet-start] Writing file "{path}"')

    def _check_node_is_free(self, access: Access) -> None:
        name = registered_name(self._configuration)
        client = ApiClient(self._cluster, access.server, access.authority, access.token)
        try:
            node = client.get(f"/api/v1/nodes/{name}")
        except ApiError as error:
            if error.status == 404:
                return
            raise KubeadmError(f'cannot get Node "{name}": {error}') from error
        if {"type": "Ready", "status": "True"} in node["status"]["conditions"]:
            raise KubeadmError(
                f'a Node with name "{name}" and status "Ready" already exists in the cluster. You must delete the '
                "existing Node or change the name of this new joining Node"
            )

    def _stop_kubelet(self) -> None:
        try:
            self._machine.services.stop(SERVICE)
        except RefusedByWindows as error:
            self._output.warn(f"[kubelet-start] WARNING: unable to stop the kubelet service momentarily: [{error}]")

    def _restart_kubelet(self) -> None:
        """kubeadm stops it once more before it starts it. If that fails, it does not start it."""
        self._output.say("[kubelet-start] Starting the kubelet")
        services = self._machine.services
        try:
            services.stop(SERVICE)
            services.start(SERVICE)
        except RefusedByWindows as error:
            self._output.warn(f"[kubelet-start] WARNING: unable to start the kubelet service: [{error}]")
            return
        if not self._machine.wait_until(lambda: services.is_running(SERVICE), _SERVICE_S):
            self._output.warn("[kubelet-start] WARNING: unable to start the kubelet service: [it does not run yet]")

    def _wait(self) -> None:
        """Wait until kubelet has its client certificate."""
        self._output.say("[kubelet-start] Waiting for the kubelet to perform the TLS Bootstrap")
        limits = self._configuration
        if reached(self._minor, "waits_for_healthy_kubelet") and not self._machine.wait_until(
            lambda: self._machine.services.is_serving(SERVICE), limits.healthy_s
        ):
            raise KubeadmError(
                "failed while waiting for the kubelet to start: The kubelet is not healthy after "
                f"{limits.healthy_s:.0f}s"
            )
        if not self._machine.wait_until(self._has_client_access, limits.tls_bootstrap_s):
            raise KubeadmError("failed while waiting for TLS bootstrap: timed out waiting for the condition")
        if not self._need().socket_is_in_config:
            self._annotate_socket()

    def _has_client_access(self) -> bool:
        return self._client_access() is not None

    def _client_access(self) -> Access | None:
        files, path = self._machine.files, self._path(CLIENT)
        with contextlib.suppress(RefusedByWindows, ValueError):
            access = read_kubeconfig(files.read(path), path)
            return access if files.is_file(access.certificate_file) else None
        return None

    def _annotate_socket(self) -> None:
        """Write the socket to the node, which has to be there under the name that kubeadm knows."""
        access, end = self._client_access(), self._machine.up_s + self._configuration.api_call_s
        if access is None:
            raise RuntimeError("kubelet's client certificate was there a moment ago")
        file = self._machine.files.host_path(access.certificate_file)
        client = ApiClient(self._cluster, access.server, access.authority, certificate_file=file)
        path = f"/api/v1/nodes/{self._configuration.name}"
        while True:
            try:
                client.get(path)
                client.patch(path, {"metadata": {"annotations": {_SOCKET_ANNOTATION: self._configuration.cri_socket}}})
            except ApiError as error:
                if self._machine.up_s + _API_RETRY_S > end:
                    raise KubeadmError(f"error writing CRISocket for this node: {error}") from error
            else:
                return
            self._machine.wait_until(lambda: False, _API_RETRY_S)
