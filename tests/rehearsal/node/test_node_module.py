"""Scripts on a node need the module that the image has beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import Process
from imagegen.rehearsal.node.api_server import Cluster
from imagegen.rehearsal.node.kubelet import Kubelet
from imagegen.rehearsal.node.pod_network_script import pod_network_scripts
from imagegen.rehearsal.node.reset_script import reset_scripts
from tests.node_support import make_machine

if TYPE_CHECKING:
    from pathlib import Path


def test_kubelets_script_without_its_module_says_so(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, "1.34.2")
    machine.files.remove(r"C:\k\common.psm1")
    kubelet = Kubelet(machine, Cluster("1.34.2"))
    machine.restart()
    machine.wait_until(lambda: bool(kubelet.ends), 60)
    assert kubelet.ends[0].startswith(r"start-kubelet: The specified module 'C:\k\common.psm1' was not loaded")


@pytest.mark.parametrize("name", ["set-pod-network", "reset-node"])
def test_a_script_without_its_module_says_so(tmp_path: Path, name: str) -> None:
    machine = make_machine(tmp_path, "1.34.2")
    [program] = (pod_network_scripts(Cluster("1.34.2")) if name == "set-pod-network" else reset_scripts()).values()
    process = Process(machine, (rf"C:\k\{name}.ps1",))
    machine.files.remove(r"C:\k\common.psm1")
    ended = program(process)
    assert ended.exit_code == 1
    assert ended.output.startswith(rf"{name}: The specified module 'C:\k\common.psm1' was not loaded")
    machine.files.write(r"C:\k\common.psm1", b"x")
    assert "module" not in program(process).output
