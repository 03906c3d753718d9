"""What the API server of a cluster answers to whom."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Any

import pytest
from cryptography import x509

from imagegen.rehearsal.network.messages import Request, parse_target
from imagegen.rehearsal.node.api_server import SIGNER, Cluster
from imagegen.rehearsal.node.authority import hash_public_key, make_client_request
from imagegen.rehearsal.node.kubeconfig import read_kubeconfig
from imagegen.rehearsal.node.objects import Node, sign_detached
from imagegen.rehearsal.node.yaml_text import read_yaml_map
from tests.node_support import TOKEN

INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
MAPS = "/api/v1/namespaces/kube-system/configmaps"
CSR = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
USAGES = ("digital signature", "client auth")


def ask(
    cluster: Cluster,
    method: str,
    target: str,
    body: Any = None,  # noqa: ANN401 - JSON
    *,
    token: str = "",
    certificate: x509.Certificate | None = None,
) -> tuple[int, Any]:
    path, query = parse_target(target)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    data = b"" if body is None else json.dumps(body).encode()
    answer = cluster.answer(Request(method, cluster.endpoint, path, query, headers, data, target), certificate)
    return answer.status, json.loads(answer.body)


def request_certificate(
    cluster: Cluster,
    name: str,
    *,
    organisation: str = "system:nodes",
    signer: str = SIGNER,
    usages: tuple[str, ...] = USAGES,
) -> x509.Certificate | None:
    _, request = make_client_request(name, organisation)
    spec = {"request": base64.b64encode(request).decode(), "signerName": signer, "usages": usages}
    status, made = ask(cluster, "POST", CSR, {"metadata": {"generateName": "csr-"}, "spec": spec}, token=cluster.token)
    assert status == 201
    found = ask(cluster, "GET", f"{CSR}/{made['metadata']['name']}", token=cluster.token)[1]
    issued = found.get("status", {}).get("certificate")
    return x509.load_pem_x509_certificate(base64.b64decode(issued)) if issued else None


def node_certificate(cluster: Cluster, name: str) -> x509.Certificate:
    certificate = request_certificate(cluster, f"system:node:{name}")
    assert certificate is not None
    return certificate


def test_anybody_reads_the_signed_cluster_info() -> None:
    cluster = Cluster("1.34.2")
    status, info = ask(cluster, "GET", INFO)
    kubeconfig = info["data"]["kubeconfig"]
    assert status == 200
    assert info["data"][f"jws-kubeconfig-{cluster.token[:6]}"] == sign_detached(kubeconfig, cluster.token)
    access = read_kubeconfig(kubeconfig.encode(), "cluster-info")
    assert access.server == f"https://{cluster.endpoint}"
    assert hash_public_key(x509.load_pem_x509_certificate(access.authority)) == cluster.ca_cert_hash


def test_the_signature_is_the_one_of_a_known_content() -> None:
    # Computed with openssl: HMAC-SHA256 over the header and the content in base64url.
    expected = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..K1chermAQEq0rdqy-ehj0VDfmA_ytv8Wzh9g26FldrE"
    assert sign_detached("apiVersion: v1\n", "abcdef.0123456789abcdef") == expected


def test_a_token_is_no_number_in_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "1" * 2 * size)
    token = Cluster("1.34.2").token
    assert read_yaml_map(f"token: {token}".encode(), "join") == {"token": token}


def test_an_expired_token_is_worth_nothing() -> None:
    cluster = Cluster("1.34.2")
    expired, cluster.token = cluster.token, TOKEN
    assert list(ask(cluster, "GET", INFO)[1]["data"]) == ["kubeconfig", f"jws-kubeconfig-{TOKEN[:6]}"]
    assert ask(cluster, "GET", f"{MAPS}/kubeadm-config", token=expired)[0] == 401


NODE_A = {"metadata": {"name": "node-a"}}


@pytest.mark.parametrize(
    ("method", "target", "anonymous", "bootstrap", "node"),
    [
        ("GET", "/healthz", 200, 200, 200),
        ("GET", "/version", 200, 200, 200),
        ("GET", INFO, 200, 200, 200),
        ("GET", f"{MAPS}/kubeadm-config", 403, 200, 200),
        ("GET", f"{MAPS}/kubelet-config", 403, 200, 200),
        ("GET", "/api/v1/nodes/known", 403, 200, 200),
        ("GET", "/api/v1/nodes/other", 403, 404, 404),
        ("POST", CSR, 403, 201, 403),
        ("GET", CSR, 403, 200, 403),
        ("POST", "/api/v1/nodes", 403, 403, 201),
        ("PATCH", "/api/v1/nodes/known", 403, 403, 403),
        ("GET", "/api/v1/pods", 404, 404, 404),
        ("DELETE", "/api/v1/nodes/known", 404, 404, 404),
    ],
)
def test_each_caller_may_do_what_it_may_do(method: str, target: str, anonymous: int, bootstrap: int, node: int) -> None:
    cluster = Cluster("1.34.2")
    cluster.nodes["known"] = Node("known")
    certificate = node_certificate(cluster, "node-a")
    body = {**NODE_A, "spec": {}} if method in ("POST", "PATCH") else None
    found = (
        ask(cluster, method, target, body)[0],
        ask(cluster, method, target, body, token=cluster.token)[0],
        ask(cluster, method, target, body, certificate=certificate)[0],
    )
    assert found == (anonymous, bootstrap, node)
    assert ask(cluster, method, target, body, token=TOKEN[::-1])[0] == 401


def test_what_was_asked_in_vain_is_recorded() -> None:
    cluster = Cluster("1.34.2")
    ask(cluster, "GET", f"{MAPS}/kubeadm-config")
    ask(cluster, "GET", "/api/v1/nodes/a", token=TOKEN[::-1])
    ask(cluster, "GET", "/api/v1/nodes/a", token=cluster.token)
    assert [text.partition(":")[2].split()[0] for text in cluster.refusals] == ["403", "401"]
    assert not [text for text in cluster.refusals if TOKEN[::-1] in text]
    assert cluster.faults == []


def test_what_the_cluster_has_no_answer_for_is_a_fault() -> None:
    cluster = Cluster("1.34.2")
    asked = [ask(cluster, "GET", "/api/v1/pods?secret=1", token=cluster.token)[0] for _ in range(2)]
    assert asked == [404, 404]
    assert cluster.faults == ["the rehearsal does not know GET /api/v1/pods of a cluster's API server"]
    assert cluster.refusals == []


def test_a_defect_of_the_cluster_is_a_fault() -> None:
    cluster = Cluster("1.34.2")
    body = b'{"metadata": {}}'
    headers = {"authorization": f"Bearer {cluster.token}"}
    answer = cluster.answer(Request("POST", cluster.endpoint, CSR, {}, headers, body, CSR))
    assert answer.status == 500
    assert cluster.faults == [f"the stand-in of {cluster.endpoint} failed on POST {CSR}: KeyError('generateName')"]


@pytest.mark.parametrize(
    ("version", "name", "cluster_configuration"),
    [
        ("1.14.10", "kubelet-config-1.14", "v1beta1"),
        ("1.23.17", "kubelet-config-1.23", "v1beta3"),
        ("1.24.0", "kubelet-config", "v1beta3"),
        ("1.34.2", "kubelet-config", "v1beta4"),
    ],
)
def test_the_configuration_of_a_minor(version: str, name: str, cluster_configuration: str) -> None:
    cluster = Cluster(version)
    config = ask(cluster, "GET", f"{MAPS}/kubeadm-config", token=cluster.token)[1]["data"]["ClusterConfiguration"]
    assert f'"kubeadm.k8s.io/{cluster_configuration}"' in config
    assert ask(cluster, "GET", f"{MAPS}/{name}", token=cluster.token)[0] == 200
    other = "kubelet-config" if name != "kubelet-config" else f"kubelet-config-{version[:4]}"
    assert ask(cluster, "GET", f"{MAPS}/{other}", token=cluster.token)[0] == 404


def test_the_certificate_is_for_the_node() -> None:
    certificate = node_certificate(Cluster("1.34.2"), "node-a")
    assert certificate.subject.rfc4514_string() == "CN=system:node:node-a,O=system:nodes"


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "admin"},
        {"organisation": "system:masters"},
        {"signer": "kubernetes.io/kube-apiserver-client"},
        {"usages": (*USAGES, "server auth")},
        {"usages": ("digital signature",)},
    ],
)
def test_nothing_else_is_signed(changes: dict[str, Any]) -> None:
    assert request_certificate(Cluster("1.34.2"), **{"name": "system:node:node-a", **changes}) is None


@pytest.mark.parametrize(
    ("version", "v1", "v1beta1"), [("1.18.0", 404, 200), ("1.20.0", 200, 200), ("1.22.0", 200, 404)]
)
def test_the_certificate_api_has_the_versions_of_the_minor(version: str, v1: int, v1beta1: int) -> None:
    cluster = Cluster(version)
    beta = CSR.replace("/v1/", "/v1beta1/")
    found = [ask(cluster, "GET", path, token=cluster.token)[0] for path in (CSR, beta)]
    assert found == [v1, v1beta1]


def test_a_node_registers_once_and_reports() -> None:
    cluster = Cluster("1.34.2")
    certificate = node_certificate(cluster, "node-a")
    node = {
        "metadata": {"name": "node-a", "labels": {"a": "b"}},
        "spec": {"taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}], "providerID": "x://1"},
        "status": {"nodeInfo": {"kubeletVersion": "v1.34.2"}},
    }
    assert ask(cluster, "POST", "/api/v1/nodes", node, certificate=certificate)[0] == 201
    assert ask(cluster, "POST", "/api/v1/nodes", node, certificate=certificate)[0] == 409
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert ask(cluster, "PATCH", "/api/v1/nodes/node-a/status", ready, certificate=certificate)[0] == 200
    found = cluster.nodes["node-a"]
    assert (found.labels, found.taints, found.provider_id) == ({"a": "b"}, ("os=windows:NoSchedule",), "x://1")
    assert (found.kubelet_version, found.ready, found.reports) == ("v1.34.2", True, 2)


def test_a_node_is_itself_only() -> None:
    cluster = Cluster("1.34.2")
    certificate = node_certificate(cluster, "node-a")
    assert ask(cluster, "POST", "/api/v1/nodes", {"metadata": {"name": "node-b"}}, certificate=certificate)[0] == 403
    assert cluster.nodes == {}


def test_the_token_is_never_shown() -> None:
    cluster = Cluster("1.34.2")
    assert cluster.token.partition(".")[2] not in json.dumps(ask(cluster, "GET", INFO)[1])
