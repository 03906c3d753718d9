"""A cluster that nodes can join: an API server on loopback, with what kubeadm and kubelet ask of one.

It answers only what a joining or running node asks. Any other request is answered with 404, and is a fault of the
rehearsal: a real cluster may have an answer.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
import secrets
import string
import threading
from typing import TYPE_CHECKING

from imagegen.catalog.facts import minor, numbers
from imagegen.rehearsal.network.http_connection import answer_request
from imagegen.rehearsal.network.journal import Journal
from imagegen.rehearsal.network.messages import Request, Response
from imagegen.rehearsal.node.authority import Authority, read_request, subject_names
from imagegen.rehearsal.node.kubeconfig import Access, write_kubeconfig
from imagegen.rehearsal.node.listener import Listener
from imagegen.rehearsal.node.objects import (
    Node,
    cluster_info,
    config_map,
    kubeadm_config,
    kubelet_config,
)

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

    from cryptography import x509

    from imagegen.rehearsal.network.messages import Json

SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
NODES_GROUP = "system:nodes"
NODE_PREFIX = "system:node:"
# In the network of the machines that join.
ADDRESS = "10.0.0.4"
_CLIENT_USAGES = frozenset({"digital signature", "key encipherment", "client auth"})
# The certificate API is v1 from this minor on; v1beta1 ended with the second.
_CSR_V1, _CSR_V1BETA1_LAST = (1, 19), (1, 21)

# The networks of the cluster. The controller manager gives each node a part of the first.
POD_RANGE, SERVICE_RANGE = "10.244.0.0/16", "10.96.0.0/12"

ANONYMOUS, BOOTSTRAP, NODE, ACCOUNT = "anonymous", "bootstrap", "node", "account"
# The service accounts whose kubeconfig the cluster gives to a node.
ACCOUNTS = ("flannel", "kube-proxy", "calico", "hybrid-overlay")
# Those that may write to nodes.
_WRITERS = ("flannel", "calico", "hybrid-overlay")
# Where the controller of OVN-Kubernetes writes the range of a node (go-controller/hybrid-overlay/pkg/types).
HYBRID_OVERLAY_SUBNET = "k8s.ovn.org/hybrid-overlay-node-subnet"


@dataclasses.dataclass(frozen=True)
class Caller:
    """Who sent a request. `name` is the name of the node that a client certificate is for."""

    kind: str
    name: str = ""


_Answer = tuple[int, "Json"]

# Calico's ranges for pods, and how the nodes reach them. Blocks have 64 addresses.
_IP_POOLS: Json = {
    "kind": "IPPoolList",
    "items": [{"spec": {"cidr": POD_RANGE, "vxlanMode": "Always", "blockSize": 26}}],
}


class Cluster:
    """The API server of a cluster whose control plane has a version. It listens inside `with`."""

    def __init__(self, version: str, control_plane: Node | None = None, *, has_hybrid_overlay: bool = False) -> None:
        """`control_plane` is its node, if it has pods that others must reach. With OVN-Kubernetes, its hybrid overlay
        and not the controller manager gives the nodes their ranges."""
        self.version = version
        self.control_plane = control_plane
        self._has_hybrid_overlay = has_hybrid_overlay
        self.endpoint = f"{ADDRESS}:6443"
        # Not of digits only: without quotes, YAML would read such a token as a number.
        self.token = f"{secrets.choice(string.ascii_lowercase)}{secrets.token_hex(3)[:5]}.{secrets.token_hex(8)}"
        """The only bootstrap token that is valid."""
        self.account_tokens = {name: f"{name}-{secrets.token_hex(16)}" for name in ACCOUNTS}
        self.nodes: dict[str, Node] = {}
        self._registered = 0
        self.refusals: list[str] = []
        """The requests of callers that the cluster does not know (401), or that may not do this (403)."""
        self._journal = Journal()
        self._authority = Authority()
        self._requests: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._listener: Listener | None = None
        self._routes = self._make_routes()

    @property
    def ca_cert_hash(self) -> str:
        """The digest of the CA's public key, for `caCertHashes` of a JoinConfiguration."""
        return self._authority.key_hash

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        if self._listener is None:
            raise RuntimeError("the cluster listens only inside `with`")
        return self._listener.port

    def __enter__(self) -> Cluster:
        self._listener = Listener(
            self._authority.issue_server(ADDRESS, "kubernetes"),
            self._authority.certificate,
            self.answer,
            self._journal,
        )
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: types.TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    @property
    def faults(self) -> list[str]:
        """What proves nothing about the node, as sentences: requests that the cluster has no answer for, failures of
        TLS, and defects of the cluster itself. The list is complete when the cluster has ended."""
        return self._journal.faults

    def answer(self, request: Request, certificate: x509.Certificate | None = None) -> Response:
        """Answer one request. `certificate` is the client's, which this cluster's CA signed."""
        response = answer_request(lambda asked: self._answer(asked, certificate), request)
        if response.fault:
            self._journal.add_fault(response.fault)
        return response

    def _answer(self, request: Request, certificate: x509.Certificate | None) -> Response:
        caller = self._identify(request.headers.get("authorization", ""), certificate)
        status, body = (401, "Unauthorized") if caller is None else self._route(request, caller)
        if status in (401, 403):
            with self._lock:
                self.refusals.append(f"{request.method} {request.path}: {status} {body}")
        return Response.of_json(status, body if status < 300 else _failure(status, str(body)))

    def _identify(self, authorization: str, certificate: x509.Certificate | None) -> Caller | None:
        """Who is calling; None for a wrong token. As in a real API server a client certificate counts first."""
        if certificate is not None:
            name, groups = subject_names(certificate.subject)
            return (
                Caller(NODE, name.removeprefix(NODE_PREFIX)) if groups == (NODES_GROUP,) else Caller("stranger", name)
            )
        if not authorization:
            return Caller(ANONYMOUS)
        for name, token in self.account_tokens.items():
            if secrets.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
                return Caller(ACCOUNT, name)
        is_right = secrets.compare_digest(authorization.encode(), f"Bearer {self.token}".encode())
        return Caller(BOOTSTRAP) if is_right else None

    def _route(self, request: Request, caller: Caller) -> _Answer:
        for method, pattern, kinds, act in self._routes:
            if method == request.method and (found := re.fullmatch(pattern, request.path)):
                if kinds and caller.kind not in kinds:
                    return 403, f"{caller.kind} {caller.name} cannot {method} {request.path}"
                with self._lock:
                    return act(request, caller, *found.groups())
        self._journal.add_fault(
            f"the rehearsal does not know {request.method} {request.path} of a cluster's API server"
        )
        return 404, "the server could not find the requested resource"

    def _make_routes(self) -> list[tuple[str, str, tuple[str, ...], Callable[..., _Answer]]]:
        """Method, path, the callers that are allowed (none: everybody), and what it does."""
        system = "/api/v1/namespaces/kube-system/configmaps/"
        csr = f"/apis/certificates.k8s.io/({'|'.join(self._csr_versions())})/certificatesigningrequests"
        node = "/api/v1/nodes/([^/]+)"
        return [
            ("GET", "/healthz", (), lambda *_: (200, "ok")),
            ("GET", "/version", (), lambda *_: (200, {"gitVersion": f"v{self.version}"})),
            ("GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info", (), self._cluster_info),
            ("GET", system + "(kubeadm-config|kubelet-config[^/]*|kube-proxy)", (BOOTSTRAP, NODE), self._config_map),
            ("GET", node, (BOOTSTRAP, NODE, ACCOUNT), self._get_node),
            ("GET", "/api/v1/nodes", (ACCOUNT,), self._list_nodes),
            ("GET", "/api/v1/services", (ACCOUNT,), lambda *_: (200, {"kind": "ServiceList", "items": []})),
            ("GET", "/apis/crd.projectcalico.org/v1/ippools", (ACCOUNT,), lambda *_: (200, _IP_POOLS)),
            ("POST", csr, (BOOTSTRAP,), self._create_request),
            ("GET", csr, (BOOTSTRAP,), self._list_requests),
            ("GET", csr + "/([^/]+)", (BOOTSTRAP,), self._get_request),
            ("POST", "/api/v1/nodes", (NODE,), self._register),
            ("PATCH", node + "(/status)?", (NODE, ACCOUNT), self._patch_node),
        ]

    def _csr_versions(self) -> list[str]:
        known = numbers(minor(self.version))
        return ["v1"] * (known >= _CSR_V1) + ["v1beta1"] * (known <= _CSR_V1BETA1_LAST)

    def _cluster_info(self, *_: object) -> _Answer:
        return 200, cluster_info(f"https://{self.endpoint}", self._authority.certificate, self.token)

    def _config_map(self, _request: Request, _caller: Caller, name: str) -> _Answer:
        maps = [
            kubeadm_config(self.version, self.endpoint),
            kubelet_config(self.version),
            config_map("kube-system", "kube-proxy", {"config.conf": "kind: KubeProxyConfiguration\n"}),
        ]
        found = [item for item in maps if item["metadata"]["name"] == name]
        return (200, found[0]) if found else (404, f'configmaps "{name}" not found')

    def _get_node(self, _request: Request, _caller: Caller, name: str) -> _Answer:
        return (200, self.nodes[name].json()) if name in self.nodes else (404, f'nodes "{name}" not found')

    def _list_nodes(self, *_: object) -> _Answer:
        nodes = [*([self.control_plane] if self.control_plane else []), *self.nodes.values()]
        return 200, {"kind": "NodeList", "apiVersion": "v1", "items": [node.json() for node in nodes]}

    def kubeconfig(self, account: str) -> bytes:
        """The file with which a service account reaches this cluster."""
        access = Access(f"https://{self.endpoint}", self._authority.certificate, self.account_tokens[account])
        return write_kubeconfig(access, cluster="kubernetes", user=account, context=account)

    def _register(self, request: Request, caller: Caller) -> _Answer:
        node = Node.of_json(request.json())
        if node.name != caller.name:
            return 403, f'node "{caller.name}" is not allowed to create node "{node.name}"'
        if node.name in self.nodes:
            return 409, f'nodes "{node.name}" already exists'
        self.nodes[node.name] = node
        # The first part is that of the control plane. A node that registers again gets another one.
        self._registered += 1
        if self._has_hybrid_overlay:
            node.annotations[HYBRID_OVERLAY_SUBNET] = f"10.244.{100 + self._registered}.0/24"
        else:
            node.pod_cidr = f"10.244.{self._registered}.0/24"
        return 201, node.json()

    def _patch_node(self, request: Request, caller: Caller, name: str, _status: str | None) -> _Answer:
        may_write = caller.kind == ACCOUNT and caller.name in _WRITERS
        if not may_write and caller != Caller(NODE, name):
            return 403, f'{caller.kind} "{caller.name}" is not allowed to modify node "{name}"'
        if name not in self.nodes:
            return 404, f'nodes "{name}" not found'
        body, node = request.json(), self.nodes[name]
        node.annotations |= body.get("metadata", {}).get("annotations", {})
        if "status" in body:
            node.report(body["status"])
        return 200, node.json()

    def _create_request(self, request: Request, _caller: Caller, version: str) -> _Answer:
        body = request.json()
        name = body["metadata"].get("name") or body["metadata"]["generateName"] + secrets.token_hex(3)[:5]
        body["metadata"]["name"] = name
        certificate = self._sign(body["spec"], version)
        if certificate:
            approved = {"type": "Approved", "status": "True", "reason": "AutoApproved"}
            issued = base64.b64encode(certificate).decode()
            body["status"] = {"conditions": [approved], "certificate": issued}
        self._requests[name] = body
        return 201, body

    def _sign(self, spec: Json, version: str) -> bytes | None:
        """Sign what the cluster approves by itself: a kubelet's client certificate. Anything else stays pending."""
        try:
            request = read_request(base64.b64decode(spec["request"], validate=True))
        except (binascii.Error, KeyError):
            return None
        signer = spec.get("signerName", SIGNER if version == "v1beta1" else "")
        usages = set(spec.get("usages", []))
        if request is None or signer != SIGNER or not {"client auth"} <= usages <= _CLIENT_USAGES:
            return None
        name, groups = subject_names(request.subject)
        is_node = name.startswith(NODE_PREFIX) and groups == (NODES_GROUP,)
        return self._authority.sign(request) if is_node else None

    def _list_requests(self, request: Request, _caller: Caller, version: str) -> _Answer:
        wanted = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        items = [item for name, item in self._requests.items() if name == wanted or not wanted]
        kind = {"apiVersion": f"certificates.k8s.io/{version}", "kind": "CertificateSigningRequestList"}
        return 200, {**kind, "items": items}

    def _get_request(self, _request: Request, _caller: Caller, _version: str, name: str) -> _Answer:
        found = self._requests.get(name)
        return (200, found) if found else (404, f'certificatesigningrequests "{name}" not found')


def _failure(status: int, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
