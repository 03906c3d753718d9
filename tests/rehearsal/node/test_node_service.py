"""The service kubelet before its machine has joined: how it starts, ends, and what the service manager does then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.kubelet import PIPE_TIMEOUT, Kubelet
from tests.node_support import LOG, make_machine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.machine.windows import Machine

# It never listens: a kubelet that has not joined asks nothing.
CLUSTER = Cluster("1.34.2")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path, "1.34.2")


def boot(machine: Machine) -> Kubelet:
    kubelet = Kubelet(machine, CLUSTER)
    machine.restart()
    return kubelet


def set_command(machine: Machine, old: str, new: str) -> None:
    command = machine.services.command("kubelet")
    assert old in command
    machine.services.configure("kubelet", "ImagePath", Value("ExpandString", command.replace(old, new)))


def test_kubelet_is_tried_again_and_again_before_the_join(machine: Machine) -> None:
    kubelet = boot(machine)
    assert machine.services.is_starting("kubelet")
    assert machine.wait_until(lambda: len(kubelet.ends) == 3, 60)
    assert (kubelet.starts, kubelet.is_running, kubelet.arguments) == (0, False, ())
    assert "has not joined a cluster" in machine.files.read(LOG).decode()


def test_without_recovery_it_is_not_tried_again(machine: Machine) -> None:
    machine.registry.remove_value(machine.services.key("kubelet"), "FailureActions")
    kubelet = boot(machine)
    machine.wait_until(lambda: False, 300)
    assert len(kubelet.ends) == 1


def test_the_service_manager_gives_up_when_nothing_answers_in_time(machine: Machine) -> None:
    machine.registry.write(*PIPE_TIMEOUT, Value("DWord", 3_000))
    kubelet = boot(machine)
    machine.wait_until(lambda: bool(kubelet.ends), 4)
    assert "error 1053" in kubelet.ends[0]
    assert not machine.services.is_starting("kubelet")


def test_its_patience_is_30_seconds_without_a_value(machine: Machine) -> None:
    machine.registry.remove_value(*PIPE_TIMEOUT)
    kubelet = boot(machine)
    with machine.process("kubeadm"):
        machine.wait_until(lambda: bool(kubelet.ends), 300)
    assert (machine.up_s, "error 1053" in kubelet.ends[0]) == (30, True)


def test_a_start_waits_for_a_kubeadm_that_runs(machine: Machine) -> None:
    kubelet = boot(machine)
    with machine.process("kubeadm"):
        machine.wait_until(lambda: False, 50)
        assert machine.services.is_starting("kubelet")
    machine.wait_until(lambda: bool(kubelet.ends), 5)
    # It looks every second.
    assert machine.up_s <= 51


def test_the_log_runner_knows_rotation_from_1_34_on(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, "1.33.1")
    set_command(machine, "--log-file=", "--log-file-size=100Mi --log-file=")
    kubelet = boot(machine)
    assert kubelet.ends == ["kube-log-runner.exe: flag provided but not defined: -log-file-size"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r"C:\k\kube-log-runner.exe", r"C:\k\kubelet.exe --windows-service", "of which the rehearsal has no model"),
        ("-NonInteractive", "-ExecutionPolicy Unrestricted", "of which the rehearsal has no model"),
        ("-StateFolder", "-Folder", "has no parameter -Folder"),
    ],
)
def test_another_command_is_refused_by_name(machine: Machine, old: str, new: str, words: str) -> None:
    set_command(machine, old, new)
    with pytest.raises(UnknownCommandError, match=words):
        boot(machine)


def test_another_script_is_refused_by_name(machine: Machine) -> None:
    machine.files.write(r"C:\k\start-kubelet.ps1", b"exit 0\n")
    boot(machine)
    with pytest.raises(UnknownCommandError, match="is not the script"):
        machine.wait_until(lambda: False, 10)


def test_kubelet_ends_over_flags_that_it_does_not_know(machine: Machine) -> None:
    machine.files.write(r"C:\var\lib\kubelet\config.yaml", b"kind: KubeletConfiguration\n")
    machine.files.write(r"C:\var\lib\kubelet\kubeadm-flags.env", b'KUBELET_KUBEADM_ARGS="--no-such-flag=1"\n')
    kubelet = boot(machine)
    machine.wait_until(lambda: bool(kubelet.ends), 10)
    assert kubelet.ends == ["failed to parse kubelet flag: unknown flag: --no-such-flag"]
    assert kubelet.starts == 1


NSSM = r"HKLM:\SYSTEM\CurrentControlSet\Services\kubelet\Parameters"
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
START = r"-NoProfile -NonInteractive -File C:\k\start-kubelet.ps1 -ArgumentsFile C:\k\arguments.txt"


def under_nssm(machine: Machine, *, arguments: str = "--windows-service=false", joined: bool = True) -> Kubelet:
    machine.services.configure("kubelet", "ImagePath", Value("ExpandString", r"C:\k\nssm.exe"))
    machine.files.write(r"C:\k\nssm.exe", b"MZ")
    machine.files.write(r"C:\k\arguments.txt", arguments.encode())
    machine.registry.make_key(NSSM)
    for name, text in (("Application", POWERSHELL), ("AppParameters", START), ("AppStderr", LOG)):
        machine.registry.write(NSSM, name, Value("ExpandString", text))
    machine.registry.write(NSSM, "AppRestartDelay", Value("DWord", 5000))
    if joined:
        config = b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        machine.files.write(r"C:\var\lib\kubelet\config.yaml", config)
    return boot(machine)


def test_nssm_answers_before_kubelet_does(machine: Machine) -> None:
    kubelet = under_nssm(machine, joined=False)
    assert machine.services.is_running("kubelet")
    assert not kubelet.is_running


def test_nssm_starts_the_script_again_whenever_it_ends(machine: Machine) -> None:
    kubelet = under_nssm(machine, joined=False)
    machine.registry.remove_value(machine.services.key("kubelet"), "FailureActions")
    assert machine.wait_until(lambda: len(kubelet.ends) == 3, 40)
    assert machine.up_s >= 2 * 5
    assert machine.services.is_running("kubelet")
    assert "has not joined a cluster" in machine.files.read(LOG).decode()


def test_a_service_that_nssm_runs_can_be_stopped(machine: Machine) -> None:
    kubelet = under_nssm(machine, joined=False)
    machine.wait_until(lambda: bool(kubelet.ends), 40)
    machine.services.stop("kubelet")
    machine.wait_until(lambda: False, 60)
    assert len(kubelet.ends) == 1


def test_kubelet_runs_under_nssm_only_if_it_is_no_service(machine: Machine) -> None:
    kubelet = under_nssm(machine, arguments="")
    assert machine.wait_until(lambda: bool(kubelet.ends), 40)
    assert "could not connect to the service controller" in kubelet.ends[0]
    assert not kubelet.is_running


def test_nssm_without_its_program_says_so(machine: Machine) -> None:
    kubelet = under_nssm(machine)
    machine.registry.write(NSSM, "Application", Value("ExpandString", r"C:\none.exe"))
    machine.restart()
    assert kubelet.ends[-1] == r"nssm.exe cannot start C:\none.exe"


def forget_script(machine: Machine) -> None:
    machine.files.remove(r"C:\k\start-kubelet.ps1")


def forget_parameters(machine: Machine) -> None:
    machine.registry.remove_value(NSSM, "AppParameters")


@pytest.mark.parametrize(
    ("forget", "end"),
    [
        (forget_script, r"The argument 'C:\k\start-kubelet.ps1' to the -File parameter does not exist."),
        (forget_parameters, f"{POWERSHELL} has no script to run, and ends"),
    ],
)
def test_powershell_without_its_script_ends(machine: Machine, forget: Callable[[Machine], None], end: str) -> None:
    kubelet = under_nssm(machine)
    forget(machine)
    machine.restart()
    assert machine.wait_until(lambda: bool(kubelet.ends), 40)
    assert kubelet.ends[0] == end
    assert not kubelet.is_running
