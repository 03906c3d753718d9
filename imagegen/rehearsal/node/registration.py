"""How kubelet gets its client certificate and registers its node."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from typing import TYPE_CHECKING

from cryptography import x509

from imagegen.catalog.facts import minor as minor_of
from imagegen.catalog.facts import numbers
from imagegen.rehearsal.machine.files import parent
from imagegen.rehearsal.machine.hns import NODE_ADDRESS
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.api_server import NODE_PREFIX, NODES_GROUP, SIGNER
from imagegen.rehearsal.node.authority import make_client_request, private_pem
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.kubeconfig import Access, read_kubeconfig, write_kubeconfig
from imagegen.rehearsal.node.kubelet_error import KubeletError
from imagegen.rehearsal.node.kubelet_options import split_map
from imagegen.rehearsal.node.objects import parse_taint
from imagegen.rehearsal.node.pod_network import find_unready

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.network.messages import Json
    from imagegen.rehearsal.node.api_server import Cluster

# The taint that an external cloud provider takes away once it knows the node.
_UNINITIALISED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
_CSR_V1 = (1, 19)
PROVIDED_ADDRESS = "alpha.kubernetes.io/provided-node-ip"
"""The annotation with the address that an external cloud provider must take."""


def node_name(machine: Machine, flags: Mapping[str, str]) -> str:
    """The name under which kubelet registers: the flag or the machine's, in lower case."""
    return (flags.get("hostname-override") or machine.host_name).strip().lower()


@dataclasses.dataclass(frozen=True)
class Registration:
    """One kubelet's dealings with the cluster. `flags` are the values that count."""

    machine: Machine
    cluster: Cluster
    flags: Mapping[str, str]
    version: str
    log: Callable[[str], None]

    def run(self) -> None:
        """Register the node, or report to it where it is registered. Raises ApiError where trying again may help."""
        access = self._find_access() or self._bootstrap()
        certificate = self.machine.files.host_path(access.certificate_file)
        client = ApiClient(self.cluster, access.server, access.authority, certificate_file=certificate)
        node = self._make_node()
        name = node["metadata"]["name"]
        try:
            client.post("/api/v1/nodes", node)
        except ApiError as error:
            if error.status != 409:
                raise
            client.patch(f"/api/v1/nodes/{name}/status", {"status": node["status"]})
            self.log(f"Node {name} was previously registered")
        else:
            self.log(f"Successfully registered node {name}")

    def _find_access(self) -> Access | None:
        """The access of kubelet.conf, if its certificate is there and valid. Then no bootstrap is necessary."""
        path, files = self.flags.get("kubeconfig", ""), self.machine.files
        try:
            access = read_kubeconfig(files.read(path), path)
            certificate = x509.load_pem_x509_certificate(files.read(access.certificate_file))
        except (RefusedByWindows, ValueError):
            return None
        return access if certificate.not_valid_after_utc > datetime.datetime.now(datetime.UTC) else None

    def _bootstrap(self) -> Access:
        """Ask for a client certificate with the bootstrap token."""
        path, files = self.flags.get("bootstrap-kubeconfig", ""), self.machine.files
        try:
            bootstrap = read_kubeconfig(files.read(path), path)
        except (RefusedByWindows, ValueError) as error:
            message = f"failed to run Kubelet: unable to load bootstrap kubeconfig: {error}"
            raise KubeletError(message) from error
        pem = rf"{self.flags.get('cert-dir', '')}\kubelet-client-current.pem"
        access = Access(bootstrap.server, bootstrap.authority, certificate_file=pem)
        written = write_kubeconfig(access, cluster="default-cluster", user="default-auth", context="default-context")
        files.write(self.flags["kubeconfig"], written)
        self.log("Client rotation is on, will bootstrap in background")
        client = ApiClient(self.cluster, bootstrap.server, bootstrap.authority, bootstrap.token)
        content = self._request_certificate(client)
        files.make_folder(parent(pem))
        files.write(pem, content)
        return access

    def _request_certificate(self, client: ApiClient) -> bytes:
        """Certificate and key, once the cluster has signed the request."""
        key, request = make_client_request(f"{NODE_PREFIX}{node_name(self.machine, self.flags)}", NODES_GROUP)
        version = "v1" if numbers(minor_of(self.version)) >= _CSR_V1 else "v1beta1"
        path = f"/apis/certificates.k8s.io/{version}/certificatesigningrequests"
        spec = {
            "request": base64.b64encode(request).decode(),
            "signerName": SIGNER,
            "usages": ["digital signature", "client auth"],
        }
        body = {
            "apiVersion": f"certificates.k8s.io/{version}",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "csr-"},
            "spec": spec,
        }
        name = client.post(path, body)["metadata"]["name"]
        found = client.get(f"{path}?fieldSelector=metadata.name%3D{name}")["items"]
        issued = found[0].get("status", {}).get("certificate") if found else None
        if issued is None:
            raise ApiError(0, f"certificate signing request {name} is not approved")
        return base64.b64decode(issued) + private_pem(key)

    def _make_node(self) -> Json:
        name, external = node_name(self.machine, self.flags), self.flags.get("cloud-provider") == "external"
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "windows",
            "kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "windows",
            "beta.kubernetes.io/arch": "amd64",
            "node.kubernetes.io/windows-build": f"10.0.{self.machine.build}",
        }
        annotations = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        address = self._find_address()
        if external and address:
            annotations[PROVIDED_ADDRESS] = address
        taints = [parse_taint(taint) for taint in self.flags.get("register-with-taints", "").split(",") if taint]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels | split_map(self.flags.get("node-labels", "")),
                "annotations": annotations,
            },
            "spec": {
                "providerID": self.flags.get("provider-id", ""),
                "taints": taints + ([_UNINITIALISED] if external else []),
            },
            "status": self._make_status(name, address),
        }

    def _find_address(self) -> str:
        """The address of the flag, if the machine has it (setNodeStatus and NodeAddress in kubelet's source: otherwise
        kubelet logs that, and the node registers without addresses)."""
        address = self.flags.get("node-ip", "")
        if address in ("", NODE_ADDRESS):
            return address
        why = f'node IP: "{address}" not found in the host\'s network interfaces'
        self.log(f"Failed to set some node status fields: failed to validate nodeIP: {why}")
        return ""

    def report(self) -> None:
        """Tell the cluster the state of the node. Raises ApiError where trying again may help."""
        access = self._find_access()
        if access is None:
            raise ApiError(0, "kubelet has no valid client certificate")
        certificate = self.machine.files.host_path(access.certificate_file)
        client = ApiClient(self.cluster, access.server, access.authority, certificate_file=certificate)
        node = self._make_node()
        client.patch(f"/api/v1/nodes/{node['metadata']['name']}/status", {"status": node["status"]})

    def _make_status(self, name: str, address: str) -> Json:
        addresses = [{"type": "Hostname", "address": name}]
        addresses += [{"type": "InternalIP", "address": address}] if address else []
        unready = find_unready(self.machine)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        if unready:
            ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": unready}
        return {
            "conditions": [ready],
            "nodeInfo": {"kubeletVersion": f"v{self.version}", "operatingSystem": "windows"},
            "addresses": addresses,
        }
