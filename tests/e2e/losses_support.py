"""A build without one of its resources, on the model machine: where it fails, or what the node loses."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen import pipeline
from imagegen.base.files import write_tree
from imagegen.rehearsal import expected as tree_of
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.boot.boot import boot_image
from imagegen.rehearsal.boot.image import describe_image
from imagegen.rehearsal.cloudbase_init.run import Runner
from imagegen.rehearsal.machine.engine import run_entry
from imagegen.rehearsal.machine.generalise import generalise
from imagegen.rehearsal.machine.stock import stock_windows
from imagegen.rehearsal.network.registries import Registries
from tests.conftest import REPOSITORY, load_today, make_test_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imagegen.plan.loading import Loaded
    from imagegen.plan.resolve import Decision
    from imagegen.plan.target import PreparedTarget
    from imagegen.rehearsal.machine.windows import Machine

    Interrupt = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A config with options, for one target."""

    file: str
    target: str
    sets: tuple[str, ...] = ()


MAXIMAL, BASE, DOCKER = "tests/bench/maximal.yaml", "tests/rules/base.yaml", "tests/data/docker.yaml"
TARBALL = "image_tarballs=[{name: 'registry.example.com/agent:1', url: 'https://artifacts.example.com/agent.tar'}]"
# Together they have every step, and every resource that is in no other variant.
VARIANTS = {
    "maximal-aws": Variant(MAXIMAL, "aws"),
    "maximal-azure": Variant(MAXIMAL, "azure", ("gmsa={}",)),
    "shipped": Variant("configs/windows-2022-containerd.yaml", "aws"),
    "docker": Variant(DOCKER, "aws"),
    "older": Variant("tests/golden/older-node.yaml", "aws", ("windows.trusted_roots=[roots/example-root.pem]",)),
    "win-bridge": Variant(BASE, "aws", ("cni={plugin: win-bridge}",)),
    "win-overlay": Variant(BASE, "aws", ("cni={plugin: win-overlay}",)),
    "images-and-tools": Variant(BASE, "aws", ("debug_tools=true", TARBALL)),
    "azure-cni": Variant(BASE, "azure", ("cni={plugin: azure, version: '1.6.21'}",)),
}


class BuildFailed(Exception):
    """The build ended with a failure."""


class Interrupted(BaseException):
    """The engine was killed."""


@functools.cache
def decided(variant: Variant) -> tuple[Loaded, PreparedTarget, Decision]:
    """The plan of a variant."""
    config = load_today(REPOSITORY / variant.file, *variant.sets)
    prepared = pipeline.prepare_target(config, variant.target)
    return config, prepared, pipeline.decide(prepared, make_test_lock(config, variant.target))


def resources(variant: Variant) -> list[str]:
    """The ids of its resources, each once."""
    phases = decided(variant)[2].plan.image.phases
    return list(dict.fromkeys(one.id for phase in phases for step in phase.steps for one in step.resources))


def _without(decision: Decision, resource: str) -> Decision:
    phases = tuple(
        dataclasses.replace(
            phase,
            steps=tuple(
                dataclasses.replace(step, resources=tuple(one for one in step.resources if one.id != resource))
                for step in phase.steps
            ),
        )
        for phase in decision.plan.image.phases
    )
    plan = dataclasses.replace(decision.plan, image=dataclasses.replace(decision.plan.image, phases=phases))
    return dataclasses.replace(decision, plan=plan)


def _run(machine: Machine, arguments: Sequence[str], artifacts: Mapping[str, bytes]) -> str:
    """Run a phase, and again after each interruption. Returns what it printed."""
    while True:
        with contextlib.suppress(Interrupted):
            outcome = run_entry(machine, arguments, lambda url, *_: artifacts[url])
            if outcome.exit_code not in (0, 3010):
                raise BuildFailed(outcome.output.splitlines()[-1])
            return outcome.output


def build(
    variant: Variant,
    folder: Path,
    without: str = "",
    interrupt: Interrupt | None = None,
    again: Callable[[str], object] | None = None,
) -> Machine:
    """The machine of a build that is not sealed yet. `interrupt` is called before each resource is set, and `again`
    with the output of a second run of each phase."""
    _, prepared, decision = decided(variant)
    spec, images = prepared.spec, prepared.images
    with tempfile.TemporaryDirectory() as scratch:
        write_tree(pipeline.render_tree(_without(decision, without)), Path(scratch) / "tree")
        expected = tree_of.expected_from_tree(Path(scratch) / "tree")
    accounts = spec.settings.restricted_address_users
    machine = stock_windows(folder, release=spec.config.windows.release, cloud=spec.provider, accounts=accounts)
    registries = Registries([*images], [url for image in images.values() for url in image.mirrors])

    def browse(
        url: str, headers: Mapping[str, str], authorization: str, _proxy: str | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        answer = registries.ask(url, headers, authorization)
        return answer.status, answer.headers, answer.body

    machine.browse = browse
    machine.files.write(tree_of.BUNDLE_PATH, expected.bundle)
    if interrupt is not None:
        machine.before_set = interrupt
    if expected.begins_with_restart:
        machine.restart()
    artifacts = make_artifacts(prepared.steps)
    for phase in expected.phases:
        _run(machine, phase.arguments, artifacts)
        if again is not None:
            again(_run(machine, phase.arguments, artifacts))
        if phase.restart:
            machine.restart()
    return machine


def find_losses(variant: Variant, folder: Path, without: str) -> list[str]:
    """How the build ends without a resource, or what the node that boots from the image has lost."""
    spec = decided(variant)[1].spec
    try:
        machine = build(variant, folder / "image", without)
    except BuildFailed as failure:
        return [f"build: {failure}"]
    sealed = generalise(machine, cloud=spec.provider)
    if sealed.exit_code != 0:
        return [f"seal: {sealed.output}"]
    boot = boot_image(describe_image(machine, spec), Runner(folder, os.environ))
    unknown = [f"unknown: {what}" for what in (*boot.unknown, *boot.limits)]
    return unknown + [verdict.line for verdict in boot.verdicts if not verdict.passed]
