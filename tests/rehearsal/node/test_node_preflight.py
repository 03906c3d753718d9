"""What kubeadm refuses before it asks the cluster for anything, on a machine as the steps leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import Ended, Process, UnknownCommandError
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.windows import ENVIRONMENT
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.join_flags import parse_join_flags
from imagegen.rehearsal.node.kubeadm import make_kubeadm
from tests.node_support import CONFIG, KUBEADM, join_config, make_machine, run_kubeadm, write_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

# It never listens: whatever asks it ends these tests.
CLUSTER = Cluster("1.34.2")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = make_machine(tmp_path, "1.34.2")
    machine.services.configure("kubelet", "Start", Value("DWord", 3))
    machine.restart()
    return machine


def run(machine: Machine, *words: str, user: str = "SYSTEM") -> Ended:
    return make_kubeadm(CLUSTER)(Process(machine, (KUBEADM, *words), user=user))


def put(path: str) -> Callable[[Machine], None]:
    return lambda machine: machine.files.write(path, b"x")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (put(r"C:\etc\kubernetes\kubelet.conf"), r"[ERROR FileAvailable-\etc\kubernetes\kubelet.conf]"),
        (put(r"C:\etc\kubernetes\bootstrap-kubelet.conf"), r"bootstrap-kubelet.conf already exists"),
        (put(r"C:\etc\kubernetes\pki\ca.crt"), "C:/etc/kubernetes/pki/ca.crt already exists"),
        (lambda machine: machine.services.stop("containerd"), "[ERROR CRI]: container runtime is not running"),
        (lambda machine: machine.services.answered("kubelet"), "[ERROR Port-10250]: Port 10250 is in use"),
        (lambda machine: machine.files.remove(r"C:\k\kubelet.exe"), "executable file not found in %PATH%"),
        (lambda machine: write_program(machine, "kubelet", "1.30.9"), "is lower than kubeadm can support"),
    ],
)
def test_a_check_fails(machine: Machine, prepare: Callable[[Machine], None], words: str) -> None:
    prepare(machine)
    ended = run_kubeadm(machine, CLUSTER, join_config(CLUSTER))
    assert ended.exit_code == 1
    assert words in ended.output
    assert ended.output.endswith("error execution phase preflight: preflight checks failed\n")
    assert not machine.files.exists(r"C:\var\lib\kubelet\config.yaml")


@pytest.mark.parametrize(
    "socket",
    ["npipe:////./pipe/dockershim", "npipe:////./pipe/cri-dockerd", "npipe:////./pipe/docker_engine", "unix:///x.sock"],
)
def test_a_socket_that_no_service_answers_is_refused(machine: Machine, socket: str) -> None:
    ended = run_kubeadm(machine, CLUSTER, join_config(CLUSTER, criSocket=f"  criSocket: {socket}"))
    assert "[ERROR CRI]: container runtime is not running" in ended.output


def test_two_runtimes_need_a_choice(machine: Machine) -> None:
    machine.files.write(r"C:\k\nssm.exe", b"MZ")
    machine.services.create("cri-dockerd", r"C:\k\nssm.exe", "cri-dockerd", 2)
    machine.services.start("cri-dockerd")
    ended = run_kubeadm(machine, CLUSTER, join_config(CLUSTER, criSocket=""))
    assert "found multiple CRI endpoints" in ended.output


def test_files_in_the_folder_of_manifests_are_refused_up_to_1_22(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, "1.22.17")
    machine.restart()
    machine.files.write(r"C:\etc\kubernetes\manifests\a.yaml", b"x")
    ended = run_kubeadm(machine, CLUSTER, join_config(CLUSTER, version="v1beta3"), user="Administrator")
    assert r"\etc\kubernetes\manifests is not empty" in ended.output
    assert ended.exit_code == 2


@pytest.mark.parametrize(
    ("version", "user", "words"),
    [
        ("1.30.2", "SYSTEM", "The user name could not be found"),
        ("1.30.2", r".\Administrator", ""),
        ("1.31.4", "SYSTEM", ""),
        ("1.31.4", "Guest", "elevated privileges"),
        ("1.31.4", "nobody", "elevated privileges"),
    ],
)
def test_the_account_of_kubeadm(tmp_path: Path, version: str, user: str, words: str) -> None:
    machine = make_machine(tmp_path, version)
    # containerd does not run yet: that ends kubeadm after this check.
    config = join_config(CLUSTER, version="v1beta3")
    ended = run_kubeadm(machine, CLUSTER, config, user=user)
    assert ("IsPrivilegedUser" in ended.output, words in ended.output) == (bool(words), True)


def test_a_check_can_be_ignored_by_name(machine: Machine) -> None:
    machine.services.stop("containerd")
    machine.files.write(r"C:\etc\kubernetes\kubelet.conf", b"x")
    arguments = ("--ignore-preflight-errors", "CRI")
    ended = run_kubeadm(machine, CLUSTER, join_config(CLUSTER), *arguments)
    assert "[WARNING CRI]" in ended.output
    assert "[ERROR CRI]" not in ended.output
    config = join_config(CLUSTER) + "  ignorePreflightErrors:\n  - CRI\n"
    assert "[WARNING CRI]" in run_kubeadm(machine, CLUSTER, config).output


def test_kubeadm_reads_the_drive_of_its_folder(machine: Machine) -> None:
    ended = run_kubeadm(machine, CLUSTER, join_config(CLUSTER), folder="D:\\")
    assert ended.exit_code == 1
    assert "unable to read config" in ended.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--confg", "x"], "unknown flag: --confg"),
        (["--v5"], "unknown flag: --v5"),
        (["-config", "x"], "unknown shorthand flag: 'c' in -config"),
        (["---v"], "bad flag syntax: ---v"),
        (["--=5"], "bad flag syntax: --=5"),
        (["--config"], "flag needs an argument: --config"),
        (["-v"], "flag needs an argument: 'v' in -v"),
        (["--config", "/run/none.yaml"], 'unable to read config from "/run/none.yaml"'),
        (["--config=/run/none.yaml", "--cri-socket=x"], "can not mix '--config' with arguments [cri-socket]"),
    ],
)
def test_a_command_line_is_refused(machine: Machine, arguments: list[str], words: str) -> None:
    ended = run(machine, "join", *arguments)
    assert (ended.exit_code, words in ended.output) == (1, True)


@pytest.mark.parametrize(
    "words",
    [
        ("reset",),
        ("join", "10.0.0.4:6443"),
        ("join", "--token", "abcdef.0123456789abcdef"),
        ("join", "--v", "5"),
        ("join", "-v5"),
        ("join", "--log_dir", "C:\\x"),
        ("join", "--alsologtostderr"),
        ("join", "-h"),
        ("join", "--", "--config"),
        ("version", "-o", "json"),
    ],
)
def test_a_command_without_a_model_is_refused_by_name(machine: Machine, words: tuple[str, ...]) -> None:
    with pytest.raises(UnknownCommandError, match="kubeadm"):
        run(machine, *words)


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        (["-v5"], {"v": "5"}),
        (["-v=5"], {"v": "5"}),
        (["-v", "5"], {"v": "5"}),
        (["--v=5", "-v6"], {"v": "6"}),
        (["--node_name", "-a", "--config="], {"node-name": "-a", "config": ""}),
    ],
)
def test_flags_are_read_as_pflag_reads_them(arguments: list[str], flags: dict[str, str]) -> None:
    assert parse_join_flags(arguments) == flags


def test_the_version_is_the_one_of_the_program_on_the_disk(machine: Machine) -> None:
    assert run(machine, "version", "-o", "short") == Ended(0, "v1.34.2\n")
    write_program(machine, "kubeadm", "1.29.1")
    assert 'GitVersion:"v1.29.1"' in run(machine, "version").output
    machine.files.write(r"C:\k\kubeadm.exe", b"MZ other bytes")
    with pytest.raises(UnknownCommandError, match="is not a stand-in"):
        run(machine, "version")


@pytest.mark.parametrize(
    ("on_machine", "of_process", "is_found"),
    [
        (r"%SystemRoot%\System32", "", False),
        (r"%SystemRoot%\System32;%ProgramData%\k", "", True),
        (r"%SystemRoot%\System32", "C:\\k", True),
        ("C:\\k", r"C:\Windows\System32", False),
    ],
)
def test_kubeadm_finds_kubelet_on_its_search_path(
    machine: Machine, on_machine: str, of_process: str, is_found: bool
) -> None:
    machine.files.make_folder(r"C:\ProgramData\k")
    machine.files.write(r"C:\ProgramData\k\kubelet.exe", machine.files.read(r"C:\k\kubelet.exe"))
    machine.registry.write(ENVIRONMENT, "Path", Value("ExpandString", on_machine))
    # Something else ends kubeadm after this check.
    machine.files.write(r"C:\etc\kubernetes\kubelet.conf", b"x")
    environ = {"PATH": of_process} if of_process else {}
    machine.files.write(CONFIG, join_config(CLUSTER).encode())
    ended = make_kubeadm(CLUSTER)(Process(machine, (KUBEADM, "join", "--config", CONFIG), environ=environ))
    assert ("[ERROR KubeletVersion]" in ended.output) != is_found
    assert "[ERROR FileAvailable" in ended.output
