"""A step of the operator's own, from its folder beside the config to the manifest."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from tests.e2e.rehearsal_support import DEADLINE_S, imagegen, user_environ

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

FILES = {
    "config.yaml": """\
name: own-steps
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
steps_path: steps
step_options: {agent: {server: agents.example.com}}
targets:
  aws: {region: us-east-1, network: {allowed_cidrs: [198.51.100.0/24]}}
""",
    "steps/agent/meta/step.yml": """\
summary: the agent by which a company watches its nodes
after: [kubernetes]
reads: [kubernetes.version]
timeout_s: 600
artifacts:
  agent:
    url: "https://artifacts.example.com/agent-{{ options.version }}.exe"
    override: agent_url
    component: agent
    version: "{{ options.version }}"
options:
  server: {type: string, description: The host that the agent reports to., example: agents.example.com}
  version: {type: string, default: 4.2.0, description: The version of the agent., example: 4.3.1}
""",
    "steps/agent/resources.yml": """\
- directory: {path: 'C:\\Program Files\\Agent'}
- file: {path: 'C:\\Program Files\\Agent\\agent.exe', artifact: agent}
- file: {path: 'C:\\Program Files\\Agent\\agent.ini', template: agent.ini.j2}
""",
    "steps/agent/templates/agent.ini.j2": "server={{ options.server }}\nnode=kubernetes-{{ kubernetes.version }}\n",
}


def test_an_own_step_is_rehearsed_and_recorded(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    words = imagegen("build", tmp_path / "config.yaml", "--rehearse", "--format", "json", "--out", tmp_path / "out")
    done = process.run(words, environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["versions"]["agent"] == "4.2.0"
    assert "agent" in manifest["inputs"]["artifacts"]
    resources = manifest["report"]["resources"]
    assert {item["id"]: item["status"] for item in resources if item["step"] == "agent"} == {
        "agent/directory:C:\\Program Files\\Agent": "changed",
        "agent/file:C:\\Program Files\\Agent\\agent.exe": "changed",
        "agent/file:C:\\Program Files\\Agent\\agent.ini": "changed",
    }
