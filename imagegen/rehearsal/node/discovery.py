"""How kubeadm finds and trusts a cluster: cluster-info, its signature by the token, and the pinned public key."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING

from cryptography import x509

from imagegen.rehearsal.node.authority import hash_public_key
from imagegen.rehearsal.node.client import ApiClient, ApiError
from imagegen.rehearsal.node.decode import KubeadmError
from imagegen.rehearsal.node.kubeconfig import Access, read_kubeconfig
from imagegen.rehearsal.node.objects import sign_detached

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.api_server import Cluster
    from imagegen.rehearsal.node.join_config import JoinConfiguration

_CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_RETRY_S = 5.0
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")


def discover(machine: Machine, cluster: Cluster, configuration: JoinConfiguration) -> Access:
    """The cluster's address and authority, with the bootstrap token for the requests that follow."""
    server = f"https://{configuration.endpoint}"
    kubeconfig = _fetch(machine, ApiClient(cluster, server), configuration)
    try:
        access = read_kubeconfig(kubeconfig.encode(), "cluster-info")
    except ValueError as error:
        raise KubeadmError(f"couldn't parse the kubeconfig file in the cluster-info ConfigMap: {error}") from error
    if configuration.ca_hashes:
        _check_pins(access.authority, configuration.ca_hashes)
        if _fetch(machine, ApiClient(cluster, server, access.authority), configuration) != kubeconfig:
            raise KubeadmError("the second kubeconfig from the cluster-info ConfigMap was different from the first")
    return Access(access.server, access.authority, configuration.tls_token)


def _fetch(machine: Machine, client: ApiClient, configuration: JoinConfiguration) -> str:
    """The signed kubeconfig. The cluster may sign it a little later than it makes the token, so kubeadm tries again."""
    end = machine.up_s + configuration.discovery_s
    while True:
        try:
            return _ask(client, configuration.token)
        except ApiError as error:
            if machine.up_s + _RETRY_S > end:
                raise KubeadmError(str(error)) from error
        machine.wait_until(lambda: False, _RETRY_S)


def _ask(client: ApiClient, token: str) -> str:
    identity = token.partition(".")[0]
    try:
        data = client.get(_CLUSTER_INFO)["data"]
    except ApiError as error:
        raise ApiError(error.status, f"failed to request the cluster-info ConfigMap: {error}") from error
    signature = data.get(f"jws-kubeconfig-{identity}")
    if signature is None:
        raise ApiError(
            404,
            f'could not find a JWS signature in the cluster-info ConfigMap for token ID "{identity}": the token is '
            "invalid for this cluster or it has expired",
        )
    kubeconfig: str = data["kubeconfig"]
    if not hmac.compare_digest(signature, sign_detached(kubeconfig, token)):
        raise KubeadmError(
            "failed to verify JWS signature of received cluster info object, can't trust this API Server"
        )
    return kubeconfig


def _check_pins(authority: bytes, pins: tuple[str, ...]) -> None:
    for pin in pins:
        if not _HASH.fullmatch(pin):
            raise KubeadmError(f'invalid discovery token CA certificate hash: invalid hash "{pin}"')
    found = hash_public_key(x509.load_pem_x509_certificate(authority))
    if found not in {pin.lower() for pin in pins}:
        raise KubeadmError(
            f'cluster CA found in cluster-info ConfigMap is invalid: none of the public keys "{found}" are pinned'
        )
