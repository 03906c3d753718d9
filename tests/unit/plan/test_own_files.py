"""The programs that a plan puts on the machine are those that the catalogue says nobody else may put there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.contents import SHIPPED
from imagegen.catalog.facts import paths, table
from imagegen.config.checks import lies_at
from imagegen.steps.model import load_steps
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from imagegen.plan.model import BuildPlan
    from tests.conftest import Decided

PROGRAMS = (".exe", ".ps1", ".cmd")
# An image has one network plugin.
NETWORKS = ("win-bridge", "win-overlay", "flannel", "azure, version: 1.6.21")
NETWORKS_OF_THEIR_OWN = REPOSITORY / "tests" / "data" / "networks"


def files_of(plan: BuildPlan) -> Iterator[str]:
    for phase in plan.image.phases:
        for resource in (resource for step in phase.steps for resource in step.resources):
            fields: dict[str, Any] = resource.fields
            if resource.kind in ("file", "extract"):
                yield fields["path"]
            elif resource.kind == "archive":
                yield from (f"{fields['into']}\\{member['path']}" for member in fields["members"])
            elif resource.kind == "package":
                yield from fields["files"]


@pytest.mark.parametrize("target", ["aws", "azure"])
def test_every_program_of_a_plan_is_kept_from_others(
    decide: Callable[[Path, str], Decided], target: str, tmp_path: Path
) -> None:
    layout = table("layout")
    kept = {
        f"{paths()[name]}\\{file}"
        for name, files in layout["own_files"].items()
        for file in files
        if file.endswith(PROGRAMS)
    }
    steps = load_steps(SHIPPED.step_roots).values()
    declared = {f"{paths()[name]}\\{file}" for step in steps for name, file in step.own_files}
    shipped = (REPOSITORY / "configs" / "windows-2022-containerd.yaml").read_text()
    configs = []
    for network in NETWORKS:
        config = tmp_path / f"{network}.yaml"
        more = f"\ncsi_proxy: {{}}\nkube_proxy: service\ncni: {{plugin: {network}}}\n"
        config.write_text(f"{shipped}{more}".replace("kubernetes:\n", "kubernetes:\n  service_manager: nssm\n"))
        configs.append(config)
    # wins is for nodes without HostProcess containers only.
    older = tmp_path / "older.yaml"
    text = (REPOSITORY / "tests" / "rules" / "base.yaml").read_text()
    for now, then in (('"2022"', '"2019"'), ("1.36.4", "1.22.17"), ("2.3.4", "1.6.39")):
        text = text.replace(now, then)
    older.write_text(f"{text}\nallow_eol: true\nkube_proxy: none\nwins: {{version: 0.4.11}}\n")
    docker = REPOSITORY / "tests" / "data" / "docker.yaml"
    networks = [NETWORKS_OF_THEIR_OWN / f"{name}.yaml" for name in ("calico", "ovn-kubernetes", "wincni")]
    plans = [decide(file, target).decision.plan for file in (*configs, *networks, older, docker)]
    made = {
        file
        for plan in plans
        for file in files_of(plan)
        if file.lower().endswith(PROGRAMS) and not any(lies_at(file, owned) for owned in layout["systems_own"])
    }
    assert kept <= made <= kept | declared
