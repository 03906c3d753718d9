"""A machine joins a cluster over real TLS: kubeadm and kubelet on the model machine, the API server on loopback."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
import time
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.network import loopback_server
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.authority import Authority, make_client_request, private_pem, read_request
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.kubelet import Kubelet
from imagegen.rehearsal.node.objects import Node
from tests.node_support import CONFIG, FLAGS, HOST, LOG, SCRIPT, TOKEN, join_config, make_machine, run_kubeadm

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e

NAME = "ip-10-0-0-7.ec2.internal"
BOOTSTRAP = r"C:\etc\kubernetes\bootstrap-kubelet.conf"
CLIENT = r"C:\etc\kubernetes\kubelet.conf"
CERTIFICATE = r"C:\var\lib\kubelet\pki\kubelet-client-current.pem"
TAINTS = ("os=windows:NoSchedule", "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule")
READS_FLAGS = b" + @(Read-KubeadmArgument -Path $flags)"
WAITS_FOR_FLAGS = next(line for line in SCRIPT.splitlines(keepends=True) if b"if ($joining)" in line)
# kubelet's script runs 5 seconds after the service's start, and kubeadm writes its files one second after its own.
AT_ONCE_S = 4.5


@dataclasses.dataclass
class Joined:
    """What a join left behind."""

    machine: Machine
    kubelet: Kubelet
    exit_code: int
    output: str


def join(
    root: Path,
    cluster: Cluster,
    *,
    after_s: float | None = None,
    version: str = "",
    config: str = "",
    script: bytes = SCRIPT,
) -> Joined:
    """Boot a machine and run kubeadm: after kubelet's first start ended, or so long after it began."""
    version = version or cluster.version
    minor = int(version.split(".")[1])
    machine = make_machine(root, version, script=script)
    kubelet = Kubelet(machine, cluster)
    machine.restart()
    machine.wait_until(lambda: bool(kubelet.ends), 60 if after_s is None else after_s)
    assert machine.services.is_starting("kubelet") == (after_s is not None)
    api = "v1beta4" if minor >= 31 else "v1beta3" if minor >= 22 else "v1beta2"
    user = "SYSTEM" if minor >= 31 else "Administrator"
    ended = run_kubeadm(machine, cluster, config or join_config(cluster, version=api), user=user)
    machine.wait_until(lambda: bool(cluster.nodes), 5)
    return Joined(machine, kubelet, ended.exit_code, ended.output)


@pytest.mark.parametrize(
    "after_s", [None, 0.0, AT_ONCE_S], ids=["in order", "while PowerShell starts", "while the script looks for files"]
)
@pytest.mark.parametrize("version", ["1.17.17", "1.22.17", "1.24.17", "1.30.2", "1.34.2", "1.36.5"])
def test_a_node_joins_with_kubeadms_flags(tmp_path: Path, version: str, after_s: float | None) -> None:
    with Cluster(version) as cluster:
        joined = join(tmp_path, cluster, after_s=after_s)
    assert joined.exit_code == 0, joined.output
    # It can neither stop the service before it writes its files, nor start it again afterwards.
    assert joined.output.count("error 1061") == (0 if after_s is None else 2)
    [node] = cluster.nodes.values()
    assert (node.name, node.taints, node.provider_id) == (NAME, TAINTS, "aws:///us-east-1a/i-0123456789abcdef0")
    assert node.kubelet_version == f"v{version}"
    assert joined.kubelet.is_running
    assert joined.kubelet.starts == 1
    assert {f"--hostname-override={NAME}", "--register-with-taints=os=windows:NoSchedule"} < {*joined.kubelet.arguments}
    assert (cluster.refusals, cluster.faults) == ([], [])


def test_a_join_leaves_its_files_and_no_secret(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        cluster.token = TOKEN
        joined = join(tmp_path, cluster)
    files = joined.machine.files
    assert sorted([*files.below(r"C:\etc\kubernetes"), *files.below(r"C:\var\lib\kubelet")]) == [
        *(CLIENT, r"C:\etc\kubernetes\pki\ca.crt", r"C:\var\lib\kubelet\config.yaml"),
        *(r"C:\var\lib\kubelet\instance-config.yaml", FLAGS, CERTIFICATE),
    ]
    config = files.read(r"C:\var\lib\kubelet\config.yaml").decode()
    assert r'clientCAFile: "C:\\etc\\kubernetes\\pki\\ca.crt"' in config
    assert 'resolvConf: ""' in config
    assert 'containerRuntimeEndpoint: "npipe:////./pipe/containerd-containerd"' in config
    secret = TOKEN.partition(".")[2]
    assert secret not in joined.output + files.read(LOG).decode()
    assert "PRIVATE KEY" in files.read(CERTIFICATE).decode()


@pytest.mark.parametrize(("version", "stays"), [("1.15.12", True), ("1.17.17", False), ("1.34.2", False)])
def test_the_file_with_the_token_goes_from_1_16_on(tmp_path: Path, version: str, stays: bool) -> None:
    with Cluster(version) as cluster:
        joined = join(tmp_path, cluster)
    assert joined.machine.files.exists(BOOTSTRAP) == stays


def test_a_second_boot_uses_what_is_on_the_disk(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        joined = join(tmp_path, cluster)
        machine, kubelet = joined.machine, joined.kubelet
        certificate, arguments = machine.files.read(CERTIFICATE), kubelet.arguments
        cluster.token = TOKEN
        machine.restart()
        assert not kubelet.is_running
        assert machine.wait_until(lambda: cluster.nodes[NAME].reports == 2, 60)
    assert list(cluster.nodes) == [NAME]
    assert (kubelet.is_running, kubelet.starts, kubelet.arguments) == (True, 2, arguments)
    assert machine.files.read(CERTIFICATE) == certificate
    assert (cluster.refusals, cluster.faults) == ([], [])


def test_a_second_boot_under_another_name_is_refused_by_the_cluster(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        machine = join(tmp_path, cluster, config=join_config(cluster, **{"name: ip": ""})).machine
        assert list(cluster.nodes) == [HOST.lower()]
        machine.set_host_name("WIN-OTHER")
        machine.restart()
        machine.wait_until(lambda: bool(cluster.refusals), 60)
    assert "is not allowed to create node" in cluster.refusals[0]
    assert list(cluster.nodes) == [HOST.lower()]


@pytest.mark.parametrize(
    ("version", "words"), [("1.34.2", "This node has joined the cluster"), ("1.30.2", "error writing CRISocket")]
)
def test_a_script_that_ignores_the_flags_is_seen(tmp_path: Path, version: str, words: str) -> None:
    """Up to 1.33 kubeadm looks for the node afterwards; later versions do not notice."""
    with Cluster(version) as cluster:
        joined = join(tmp_path, cluster, script=SCRIPT.replace(READS_FLAGS, b""))
    assert words in joined.output
    [node] = cluster.nodes.values()
    assert (node.name, node.taints, node.provider_id) == (HOST.lower(), (), "")
    assert "--hostname-override" not in " ".join(joined.kubelet.arguments)


def test_a_start_that_does_not_wait_for_the_flags_misses_them(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        joined = join(tmp_path, cluster, after_s=AT_ONCE_S, script=SCRIPT.replace(WAITS_FOR_FLAGS, b""))
    assert joined.exit_code == 0
    assert list(cluster.nodes) == [HOST.lower()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sha256": f"    - sha256:{'0' * 64}"}, "none of the public keys"),
        ({"sha256": "    - sha256:abc"}, "invalid discovery token CA certificate hash"),
        ({"token": f"    token: {TOKEN[::-1][:6]}.{'0' * 16}"}, "could not find a JWS signature"),
        ({"token": f"    token: {TOKEN[:6]}.{'0' * 16}"}, "failed to verify JWS signature"),
        ({"apiServerEndpoint": "    apiServerEndpoint: 10.0.0.9:6443"}, "it does not answer"),
    ],
)
def test_kubeadm_does_not_trust(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    with Cluster("1.34.2") as cluster:
        cluster.token = TOKEN
        joined = join(tmp_path, cluster, config=join_config(cluster, **changes))
    assert joined.exit_code == 1
    assert "couldn't validate the identity of the API Server" in joined.output
    assert words in joined.output
    assert not joined.machine.files.exists(BOOTSTRAP)


def test_an_expired_token_ends_the_join_after_its_time(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        config = join_config(cluster) + "timeouts:\n  discovery: 20s\n"
        cluster.token = TOKEN
        joined = join(tmp_path, cluster, config=config)
    assert "it has expired" in joined.output
    assert 20 < joined.machine.up_s < 60


def test_another_token_for_the_requests_is_refused(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        config = join_config(cluster).replace("kind: Join", f"  tlsBootstrapToken: {TOKEN}\nkind: Join")
        joined = join(tmp_path, cluster, config=config)
    assert "failed to get config map: Unauthorized" in joined.output
    assert "401" in cluster.refusals[0]


def test_kubeadm_started_from_another_drive_does_not_join(tmp_path: Path) -> None:
    """Its own paths have no drive: with a configuration that it finds, it would write to the other drive."""
    with Cluster("1.34.2") as cluster:
        machine = make_machine(tmp_path, "1.34.2")
        machine.restart()
        machine.services.stop("kubelet")
        ended = run_kubeadm(machine, cluster, join_config(cluster), "--config", CONFIG, folder="D:\\")
    assert ended.exit_code == 1
    assert "error execution phase kubelet-start: cannot find drive D:" in ended.output
    assert cluster.nodes == {}


@pytest.mark.parametrize(("is_ready", "exit_code"), [(True, 1), (False, 0)])
def test_a_name_that_a_ready_node_has_is_refused(tmp_path: Path, is_ready: bool, exit_code: int) -> None:
    with Cluster("1.34.2") as cluster:
        cluster.nodes[NAME] = Node(NAME, ready=is_ready)
        joined = join(tmp_path, cluster)
    assert joined.exit_code == exit_code
    assert ('status "Ready" already exists in the cluster' in joined.output) == is_ready
    assert joined.machine.files.exists(FLAGS) != is_ready


@pytest.mark.parametrize(
    ("cluster_version", "version", "words"),
    [
        ("1.32.4", "1.34.2", "only supports deploying clusters with the control plane version >= 1.33.0"),
        ("1.34.2", "1.26.1", "failed to decode cluster configuration data"),
        ("1.33.0", "1.34.2", "This node has joined the cluster"),
    ],
)
def test_versions_of_kubeadm_and_cluster(tmp_path: Path, cluster_version: str, version: str, words: str) -> None:
    with Cluster(cluster_version) as cluster:
        assert words in join(tmp_path, cluster, version=version).output


def test_a_gate_that_kubelet_does_not_know_keeps_the_node_away(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        config = join_config(cluster, **{"name: cloud-provider": "  - name: feature-gates"})
        joined = join(tmp_path, cluster, config=config.replace("value: external", "value: NoSuchGate=true"))
    assert "The kubelet is not healthy after 240s" in joined.output
    assert "unrecognized feature gate: NoSuchGate" in joined.machine.files.read(LOG).decode()
    assert cluster.nodes == {}


def test_a_flag_that_kubelet_does_not_know_keeps_the_node_away(tmp_path: Path) -> None:
    with Cluster("1.34.2") as cluster:
        config = join_config(cluster, **{"name: cloud-provider": "  - name: register-schedulable"})
        joined = join(tmp_path, cluster, config=config)
    assert joined.exit_code == 1
    assert "unknown flag: --register-schedulable" in joined.kubelet.ends[-1]
    assert not joined.machine.files.exists(BOOTSTRAP)


def test_the_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    key, pem = make_client_request("system:node:a", "system:nodes")
    request = read_request(pem)
    assert request is not None
    file = tmp_path / "client.pem"
    file.write_bytes(Authority().sign(request) + private_pem(key))
    with Cluster("1.34.2") as cluster:
        client = ApiClient(cluster, f"https://{cluster.endpoint}", certificate_file=file)
        with pytest.raises(ApiError):
            client.get("/api/v1/nodes/a")
    assert cluster.faults[0].startswith("the TLS handshake with the cluster's API server failed: ")
    assert cluster.refusals == []


def test_the_servers_certificate_is_checked() -> None:
    with Cluster("1.34.2") as cluster:
        client = ApiClient(cluster, f"https://{cluster.endpoint}", Authority().certificate)
        with pytest.raises(ApiError, match="certificate verify failed"):
            client.get("/healthz")


def test_a_request_that_the_cluster_does_not_know_is_a_fault() -> None:
    with Cluster("1.34.2") as cluster:
        client = ApiClient(cluster, f"https://{cluster.endpoint}")
        for method in (client.get, lambda path: client.patch(path, {})):
            with pytest.raises(ApiError, match="could not find the requested resource"):
                method("/api/v1/pods")
    assert cluster.faults == [
        f"the rehearsal does not know {method} /api/v1/pods of a cluster's API server" for method in ("GET", "PATCH")
    ]


def send(cluster: Cluster, text: str) -> str:
    """Send these bytes over TLS and no more. Returns all that comes back."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", cluster.port), 10) as plain,
        context.wrap_socket(plain) as client,
    ):
        client.sendall(text.encode())
        socket.socket.shutdown(client, socket.SHUT_WR)
        # OpenSSL takes an end without its own message for a fault.
        with client.makefile("rb") as stream, contextlib.suppress(ssl.SSLError):
            return stream.read().decode()
    return ""


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("GET /api", ""),
        ("POST {path} HTTP/1.1\r\n{token}\r\nContent-Length: many\r\n\r\n", "HTTP/1.1 400"),
        ("POST {path} HTTP/1.1\r\n{token}\r\nContent-Length: 999999999999\r\n\r\n", "HTTP/1.1 400"),
        ("POST {path} HTTP/1.1\r\n{token}\r\nContent-Length: 10\r\n\r\nhalf", ""),
    ],
)
def test_half_a_request_harms_nobody(text: str, answer: str) -> None:
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    with Cluster("1.34.2") as cluster:
        token = f"Authorization: Bearer {cluster.token}"
        assert send(cluster, text.format(path=path, token=token))[:12] == answer
        assert ApiClient(cluster, f"https://{cluster.endpoint}").get("/healthz") == "ok"
    assert cluster.faults == []


def test_too_many_connections_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_server, "MAX_CONNECTIONS", 1)
    with (
        Cluster("1.34.2") as cluster,
        socket.create_connection(("127.0.0.1", cluster.port), 10),
        pytest.raises(ApiError),
    ):
        ApiClient(cluster, f"https://{cluster.endpoint}").get("/healthz")
    assert cluster.faults == ["there are more than 1 connections at a time"]


def test_a_cluster_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with Cluster("1.34.2") as cluster:
        assert ApiClient(cluster, f"https://{cluster.endpoint}").get("/healthz") == "ok"
        assert threading.active_count() > before
    assert threading.active_count() == before
    with pytest.raises(RuntimeError, match="inside `with`"):
        _ = cluster.port


def test_a_cluster_does_not_wait_for_a_client_that_says_nothing() -> None:
    before = threading.active_count()
    with socket.socket() as client:
        with Cluster("1.34.2") as cluster:
            client.connect(("127.0.0.1", cluster.port))
            # The second connection is accepted after the first.
            ApiClient(cluster, f"https://{cluster.endpoint}").get("/healthz")
            started = time.monotonic()
        assert time.monotonic() - started < 5
    assert threading.active_count() == before
