"""The walk of docs/walks.md: Windows Server 2019 with containerd, Azure CNI, and Calico for network policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen.build import process
from imagegen.errors import ExitCode
from tests.conftest import REPOSITORY
from tests.e2e.rehearsal_support import DEADLINE_S, imagegen, user_environ

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

CONFIG = REPOSITORY / "tests" / "data" / "walks" / "network-policy.yaml"


def test_the_walk_with_network_policies(tmp_path: Path) -> None:
    words = imagegen("build", CONFIG, "--target", "azure", "--rehearse", "--out", tmp_path / "out", "--format", "json")
    done = process.run(words, environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    boot = manifest["notes"]["rehearsal"]["boot"]
    assert {"pod-network", "network-policies", "kube-proxy", "services", "ssh", "ready", "second-boot"} <= set(
        boot["passed"]
    )
    resources = {item["id"]: item["facts"] for item in manifest["report"]["resources"]}
    assert {"calico/service:CalicoNode", "calico/service:CalicoFelix", "csi-proxy/service:csi-proxy"} <= set(resources)
    text = (REPOSITORY / "docs" / "walks.md").read_text(encoding="utf-8")
    shown = [line for line in CONFIG.read_text(encoding="utf-8").splitlines() if line and line[0] not in "#e"]
    assert [line for line in shown if line not in text.splitlines()] == []
