"""Which rights on a node were given on purpose: for each guarded folder one that was, and those that were not."""

from __future__ import annotations

import pytest

from imagegen.boot.guarded import Guarded, find_guard, find_open, list_guarded
from imagegen.boot.node import Access
from imagegen.catalog.facts import paths
from tests.conftest import REPOSITORY

USERS = "S-1-5-32-545"
SYSTEM = "S-1-5-18"
KUBERNETES = r"C:\kubernetes\bin"
GUARDED = list_guarded({**paths(), "kubernetes": KUBERNETES})
CLOUDBASE = r"C:\Program Files\Cloudbase Solutions\Cloudbase-Init"
DATA = r"C:\ProgramData\containerd"
KUBELET = r"C:\var\lib\kubelet"
SSH = r"C:\ProgramData\ssh"
ALL = ("Read", "ReadAndExecute", "CreateFiles, AppendData", "Write", "Modify", "FullControl", "ChangePermissions")
READ = ALL[:2]
CREATE = ALL[:3]
# (the path, the rights that Users may have there, and the row of docs/reality.md for the others)
PATHS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (r"C:\etc\kubernetes", (), ""),
    (r"C:\etc\kubernetes\pki\ca.crt", (), ""),
    (r"c:\ETC\Kubernetes\kubelet.conf", (), ""),
    (KUBELET, (), ""),
    (KUBELET + r"\config.yaml", (), ""),
    (KUBELET + r"\pki\kubelet-client-current.pem", (), ""),
    # Where templates for Azure look for the credential provider and its configuration (N14).
    (KUBELET + r"\credential-provider-config.yaml", (), ""),
    (KUBELET + r"\credential-provider\acr-credential-provider.exe", (), ""),
    (KUBELET + r"\pods", CREATE, ""),
    (KUBELET + r"\pods\1\volumes\secret\token", CREATE, ""),
    (KUBELET.upper() + r"\PODS\1", CREATE, ""),
    (KUBELET + r"\pods-old\1", (), ""),
    (KUBELET + r"\pod", (), ""),
    (KUBELET + r"\pods.txt", (), ""),
    (KUBELET + r"\old\pods\1", (), ""),
    (r"C:\var\log\kubelet", (), ""),
    (r"C:\var\log\kubelet\kubelet.log.1", (), ""),
    (r"C:\etc\rancher\wins", (), ""),
    (r"C:\etc\rancher\wins\config", (), ""),
    (r"C:\var\log\csi-proxy", (), ""),
    (r"C:\var\log\csi-proxy\csi-proxy.log.1", (), ""),
    (r"C:\var\log\kube-proxy", (), ""),
    (r"C:\var\log\kube-proxy\kube-proxy.log", (), ""),
    (r"C:\var\log\flannel", (), ""),
    (r"C:\var\log\flannel\flanneld.log", (), ""),
    (r"C:\CalicoWindows", (), ""),
    (r"C:\CalicoWindows\config.ps1", (), ""),
    (r"C:\var\log\calico", (), ""),
    (r"C:\var\log\calico\calico-node.log", (), ""),
    (r"C:\var\log\hybrid-overlay", (), ""),
    (r"C:\var\log\hybrid-overlay\hybrid-overlay-node.log", (), ""),
    (r"C:\run\kubeadm", (), "B9"),
    (r"C:\run\kubeadm\kubeadm-join-config.yaml", (), "B9"),
    (r"C:\run\cluster-api\placeholder", (), "B9"),
    (r"C:\Run\Cluster-API", (), "B9"),
    (r"C:\run\kubeadm-old\token", (), "B9"),
    (r"C:\run\made-by-user-data", (), "B9"),
    (r"C:\run\file", (), "B9"),
    (KUBERNETES, (), ""),
    (KUBERNETES + r"\kubelet.exe", (), ""),
    (r"C:\Program Files\containerd", READ, ""),
    (r"C:\Program Files\containerd\containerd.exe", READ, ""),
    (r"C:\Program Files\containerd\certs.d\docker.io\hosts.toml", READ, ""),
    (DATA, (), ""),
    (DATA + r"\root\io.containerd.metadata.v1.bolt\meta.db", (), ""),
    (DATA + r"\state", (), ""),
    (r"C:\var\log\containerd", (), "N2"),
    (r"C:\var\log\containerd\containerd.log", (), "N2"),
    (CLOUDBASE, READ, ""),
    (CLOUDBASE + r"\Python\python.exe", READ, ""),
    (CLOUDBASE + r"\LocalScripts", READ, ""),
    (CLOUDBASE + r"\configuration", READ, ""),
    (CLOUDBASE + r"\conf", (), ""),
    (CLOUDBASE + r"\conf\cloudbase-init.conf", (), ""),
    (CLOUDBASE + r"\log", (), "B7"),
    (CLOUDBASE + r"\LOG\cloudbase-init.log", (), "B7"),
    (CLOUDBASE + r"\logs", READ, ""),
    (r"C:\Program Files\docker", READ, ""),
    (r"C:\Program Files\docker\dockerd.exe", READ, ""),
    (r"C:\ProgramData\docker", (), ""),
    (r"C:\ProgramData\docker\config\daemon.json", (), ""),
    (r"C:\Program Files\cri-dockerd", READ, ""),
    (r"C:\Program Files\cri-dockerd\nssm.exe", READ, ""),
    (r"C:\var\log\cri-dockerd", (), ""),
    (r"C:\var\log\cri-dockerd\cri-dockerd.log", (), ""),
    (SSH, READ, ""),
    (SSH + r"\sshd_config", READ, ""),
    (SSH + r"\administrators_authorized_keys", (), ""),
    (SSH + r"\ssh_host_dsa_key", (), ""),
    (SSH + r"\ssh_host_ecdsa_key", (), ""),
    (SSH + r"\ssh_host_ed25519_key", (), ""),
    (SSH + r"\SSH_HOST_RSA_KEY", (), ""),
    (SSH + r"\ssh_host_rsa_key.pub", READ, ""),
    (r"C:\etc", (), ""),
    (r"C:\etc\kubernetes-old", (), ""),
    (r"C:\etc\cni\net.d", (), ""),
    (r"C:\etc\cni\net.d\00-x.conflist", (), ""),
    (r"C:\etc\kube-flannel", (), ""),
    (r"C:\etc\kube-flannel\net-conf.json", (), ""),
    (r"C:\opt", (), ""),
    (r"C:\opt\cni", (), ""),
    (r"C:\opt\cni\bin", (), ""),
    (r"C:\opt\cni\bin\host-local.exe", (), ""),
    (r"C:\usr", (), ""),
    (r"C:\usr\libexec\kubernetes\kubelet-plugins\volume\exec\x~y\y.exe", (), ""),
    (r"C:\var", (), ""),
    (r"C:\var\lib", (), ""),
    (r"C:\var\log\pods\default_a_1\a\0.log", (), ""),
    (r"C:\run", (), ""),
    (r"C:\RUN", (), ""),
    (r"C:\kubernetes", (), ""),
    (r"C:\kubernetes\bin2", (), ""),
    # Not guarded.
    ("C:", ALL, ""),
    (r"C:\etcetera", ALL, ""),
    (r"C:\old\etc\kubernetes", ALL, ""),
    (r"C:\variable\lib\kubelet", ALL, ""),
    (r"C:\running\kubeadm", ALL, ""),
    (r"C:\k\kubelet.exe", ALL, ""),
    (r"C:\ProgramData\containerd2", ALL, ""),
    (r"C:\ProgramData\ssh2", ALL, ""),
    (r"C:\ProgramData\imagegen", (), ""),
    (r"C:\ProgramData\imagegen\manifest.json", (), ""),
    (r"C:\ProgramData\imagegen2", ALL, ""),
    (r"C:\Program Files\Cloudbase Solutions", ALL, ""),
)


@pytest.mark.parametrize(("path", "allowed", "row"), PATHS, ids=[path for path, *_ in PATHS])
def test_rights_that_nobody_gave_are_found(path: str, allowed: tuple[str, ...], row: str) -> None:
    every = [Access(path=path, sid=USERS, rights=rights) for rights in ALL]
    assert list(find_open(GUARDED, every)) == [(row, one) for one in every if one.rights not in allowed]


def test_every_guarded_folder_has_cases_for_itself_and_for_its_inside() -> None:
    lower = [path.lower() for path, *_ in PATHS]
    for guard in GUARDED:
        folder = guard.path.lower()
        assert folder in lower, guard
        is_file = guard.path.startswith(SSH + "\\")
        assert is_file or any(path.startswith(folder + "\\") for path in lower), guard


@pytest.mark.parametrize(
    ("sid", "who"),
    [
        (USERS, "Users"),
        ("S-1-1-0", "Everyone"),
        ("S-1-5-11", "Authenticated Users"),
        ("S-1-5-4", "INTERACTIVE"),
        ("S-1-5-3", "BATCH"),
        ("S-1-5-6", "SERVICE"),
        ("S-1-5-7", "ANONYMOUS LOGON"),
        ("S-1-5-19", "LOCAL SERVICE"),
        ("S-1-5-20", "NETWORK SERVICE"),
        ("S-1-5-32-546", "Guests"),
        ("S-1-5-32-547", "Power Users"),
        ("S-1-3-1", "CREATOR GROUP"),
        ("S-1-3-4", "OWNER RIGHTS"),
        ("S-1-15-2-1", "ALL APPLICATION PACKAGES"),
        ("S-1-5-93-2-2", "ContainerUser"),
        ("S-1-5-21-1-2-3-1001", "an account"),
        ("S-1-5-80-1-2-3-4-5", "a service"),
    ],
)
def test_all_others_are_closed_out(sid: str, who: str) -> None:
    found = Access(path=r"C:\etc\kubernetes\kubelet.conf", sid=sid, rights="Read")
    assert list(find_open(GUARDED, [found])) == [("", found)], who


@pytest.mark.parametrize(
    ("sid", "who"),
    [
        (SYSTEM, "SYSTEM"),
        ("S-1-5-32-544", "Administrators"),
        ("S-1-3-0", "CREATOR OWNER"),
        ("S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464", "TrustedInstaller"),
    ],
)
def test_the_machines_owners_have_every_right(sid: str, who: str) -> None:
    found = [Access(path=guard.path + r"\x", sid=sid, rights="FullControl") for guard in GUARDED]
    assert list(find_open(GUARDED, found)) == [], who


def test_the_longest_path_decides_wherever_it_stands_in_the_list() -> None:
    outer, inner = Guarded(r"C:\a", frozenset({"Read"})), Guarded(r"C:\a\b", frozenset())
    for guarded in ((outer, inner), (inner, outer)):
        assert find_guard(guarded, r"C:\A\B\c") == inner
        assert find_guard(guarded, r"C:\a\bc") == outer
        assert find_guard(guarded, r"C:\ab") is None


def test_every_row_is_explained() -> None:
    page = (REPOSITORY / "docs" / "reality.md").read_text()
    assert [one.path for one in GUARDED if one.row and f"\n| {one.row} |" not in page] == []


def test_folders_of_user_data_in_two_places_are_both_guarded() -> None:
    layout = {**paths(), "run_kubeadm": r"C:\one\kubeadm", "run_cluster_api": r"C:\two\cluster-api"}
    guards = [find_guard(list_guarded(layout), path) for path in (r"C:\one\x", r"C:\two\x")]
    assert [guard and guard.rights for guard in guards] == [frozenset(), frozenset()]
