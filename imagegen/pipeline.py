"""The product, told once, in order: load -> lock -> resolve -> render -> write -> check -> build -> publish -> record.

Every verb of the command line is a prefix of this story, and `imagegen.loading` is its first stage. What a value is
called says where it is in it:
ImageConfig (asked) -> BuildPlan (decided) -> tree (rendered) -> CloudImage (built) -> Published -> ImageManifest.
"""

from __future__ import annotations

import dataclasses
import shlex
from typing import TYPE_CHECKING

import imagegen
from imagegen.artifacts.lock import Lock, lock_bytes, read_lock
from imagegen.artifacts.lookup import lock_artifacts
from imagegen.build.packer import CloudSide, build_tree, validate_tree
from imagegen.build.progress import show_build
from imagegen.build.sizes import build_on_first
from imagegen.build.tools import cache_folder, find_tools
from imagegen.build.workspace import BuildFolder
from imagegen.canonical import digest
from imagegen.contents import read_folder
from imagegen.doctor import refuse_wrong
from imagegen.errors import ERROR, BuildError, ConfigError, PublishError, RefusedError
from imagegen.files import write_file, write_tree
from imagegen.leftovers.recording import in_journal, refuse_claimed
from imagegen.lines import counted
from imagegen.loading import awaited_for, load
from imagegen.manifest.record import make_manifest
from imagegen.manifest.report import forget_reports, judge_report
from imagegen.manifest.store import store_in
from imagegen.manifest.verdict import accept_built, check_found, expected_report
from imagegen.plan.context import artifact_requests, evaluate_steps
from imagegen.plan.resolve import resolve, unanswered
from imagegen.providers import provider
from imagegen.providers.tags import REJECTED
from imagegen.render.tree import render

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.build.packer import OnError
    from imagegen.build.toolchain import Toolchain
    from imagegen.console import Console
    from imagegen.loading import Asked, Loaded
    from imagegen.manifest.model import ImageManifest
    from imagegen.plan.model import BuildPlan
    from imagegen.plan.resolve import Decision
    from imagegen.providers import CloudImage, Published, Run
    from imagegen.steps.evaluate import EvaluatedStep


def evaluated(loaded: Loaded, target: str) -> tuple[EvaluatedStep, ...]:
    """The steps for one target; what cannot be made yet is refused by name."""
    if missing := awaited_for(loaded, [target]):
        refused = [dataclasses.replace(problem, severity=ERROR) for problem in missing]
        raise RefusedError(f"{loaded.file} asks for what is not built yet", problems=refused)
    return evaluate_steps(loaded.specs[target], loaded.steps)


def read_lock_for(loaded: Loaded, target: str, file: Path) -> Lock:
    """The lock as it is; incomplete or missing is an error that names the command."""
    spec = loaded.specs[target]
    cloud = provider(spec.provider)
    lock = read_lock(file, {target: cloud.base_form})
    missing = unanswered(spec, lock, evaluated(loaded, target), cloud)
    if lock is None or missing:
        what = f"there is no lock {file}" if lock is None else f"{file} does not answer for {', '.join(missing)}"
        raise ConfigError(what, hint=f"run `imagegen lock {shlex.quote(str(loaded.file))}`, which looks it up")
    return lock


def look_up(loaded: Loaded, targets: list[str], file: Path, *, refresh: bool, run: Run, console: Console) -> Lock:
    """The lock with everything answered; what floats is looked up only where it is not answered yet, or on refresh."""
    old = read_lock(file, {target: provider(loaded.specs[target].provider).base_form for target in targets})
    bases = dict(old.base_images) if old else {}
    requests: dict[str, ArtifactRequest] = {}
    for target in targets:
        requests |= artifact_requests(evaluated(loaded, target))
        spec = loaded.specs[target]
        cloud = provider(spec.provider)
        request = cloud.base_request(spec.settings, spec.offered_image)
        if refresh or target not in bases or bases[target].request != request:
            with console.task(f"looking up the base image for {target}", None):
                bases[target] = cloud.look_up_base(spec.settings, request, run)
    cache = cache_folder(run.environ) / "artifacts"
    artifacts = lock_artifacts(requests, old, refresh=refresh, environ=run.environ, cache=cache, console=console)
    lock = Lock(labels=dict(run.labels), artifacts=artifacts, base_images=bases)
    if lock != old:
        write_file(file, lock_bytes(lock))
        console.say(f"locked {counted(len(artifacts), 'artifact')} and {counted(len(bases), 'base image')} in {file}")
    return lock


def decide(loaded: Loaded, target: str, lock: Lock) -> Decision:
    """The plan, and the bytes it speaks of."""
    packer, spec = loaded.contents.packer, loaded.specs[target]
    guest = read_folder(loaded.contents.guest)
    scripts = {"start.ps1": guest.pop("start.ps1")}
    scripts |= {f"{spec.provider}/{path}": data for path, data in read_folder(packer / spec.provider, "*.ps1").items()}
    templates = {path: text.decode() for path, text in read_folder(packer, "**/*.j2").items()}
    return resolve(spec, lock, evaluated(loaded, target), guest, scripts, templates)


def render_tree(decision: Decision) -> dict[str, bytes]:
    """The exact bytes that Packer reads."""
    return render(decision, provider(decision.plan.image.provider))


def build_folder(plan: BuildPlan, out: Path) -> BuildFolder:
    """Where everything of this image lies: out/<name>/<id>, or <id>-<target> where the target is not named after its
    cloud: targets with the same settings have the same id, and each has its own machine and report."""
    own = "" if plan.build.target == plan.image.provider else f"-{plan.build.target}"
    return BuildFolder((out / plan.build.name / f"{plan.short_id}{own}").absolute())


def write(tree: Mapping[str, bytes], folder: BuildFolder) -> None:
    """The tree on disk."""
    write_tree(tree, folder.tree)


def find_toolchain(plan: BuildPlan, run: Run, console: Console) -> Toolchain:
    """Packer and the target's plugin."""
    cloud = provider(plan.image.provider)
    needed = cloud.plugin_for(plan.settings, plan.image.versions)
    return find_tools(environ=run.environ, console=console, needed=[needed])


def check(plan: BuildPlan, tools: Toolchain, folder: BuildFolder, run: Run) -> None:
    """Packer accepts the tree, or the reason why not."""
    validate_tree(tools, folder.tree, environ=run.environ, cloud=_cloud_side(plan))


def _cloud_side(plan: BuildPlan) -> CloudSide:
    cloud = provider(plan.image.provider)
    secrets = cloud.secret_variables(plan.settings) if cloud.secret_variables else frozenset[str]()
    return CloudSide(cloud.environment, secrets, cloud.traces, cloud.advice)


def build(
    plan: BuildPlan,
    tools: Toolchain,
    folder: BuildFolder,
    run: Run,
    console: Console,
    on_error: OnError | None = None,
) -> CloudImage:
    """The image in the build region, made by Packer on the first of the builder's sizes that can be had."""
    cloud = provider(plan.image.provider)
    variables = {**run.variables, "imagegen_version": imagegen.__version__, "report_file": str(folder.report)}
    if cloud.build_variables:
        variables |= cloud.build_variables(plan, run)

    def attempt(size: str) -> None:
        with show_build(console, plan.build.target, drawn=not (on_error and on_error.ask)) as display:
            build_tree(
                *(tools, folder.tree),
                environ=run.environ,
                variables={**variables, "builder_size": size},
                log=folder.log,
                display=display,
                timeout_s=plan.build.longest_s,
                cloud=_cloud_side(plan),
                on_error=on_error,
            )

    forget_reports(folder.report)
    try:
        build_on_first(cloud.builder_sizes(plan.settings), attempt, no_capacity=cloud.no_capacity, console=console)
        # Before anything else can fail: the image is in the cloud, where the next run finds it.
        rejection = judge_report(folder.report, expected_report(plan))
    finally:
        if cloud.clean_up:
            cloud.clean_up(plan, variables, run, console)
    built = find_built(plan, run, console)
    # Those that are rejected are not this build's: its own has no verdict yet.
    if built is None or built.report == REJECTED:
        raise BuildError("Packer ended well, the cloud shows no image with this identity", hint=f"read {folder.log}")
    accept_built(plan, built, rejection, run, console)
    return built


def find_built(plan: BuildPlan, run: Run, console: Console) -> CloudImage | None:
    """The image of this plan in the build region; where there is none, those that failed are named."""
    found = provider(plan.image.provider).find_built(plan, run)
    for failure in found.failed:
        console.warn(failure)
    return found.image


def publish(plan: BuildPlan, built: CloudImage, run: Run, console: Console) -> Published:
    """The image usable where the plan says."""
    return provider(plan.image.provider).publish(plan, built, run, console)


def record(
    loaded: Loaded,
    lock: Lock,
    decision: Decision,
    folder: BuildFolder,
    tools: Toolchain | None,
    built: CloudImage,
    published: Published | None,
    run: Run,
    out: Path,
) -> ImageManifest:
    """What was made, from which inputs, where it is, and what the guest found on itself."""
    manifest = make_manifest(
        plan=decision.plan,
        config=(loaded.file.name, digest(loaded.config.model_dump(mode="json"))),
        base_request=lock.base_images[decision.plan.build.target].request,
        tools=tools,
        built=built,
        published=published,
        report=folder.report,
        expected=expected_report(decision.plan),
        run=run,
    )
    return store_in(out).put(manifest)


def build_and_publish(
    asked: Asked,
    target: str,
    *,
    lock_file: Path,
    out: Path,
    run: Run,
    console: Console,
    rebuild: bool,
    with_publish: bool,
    on_error: OnError | None = None,
) -> ImageManifest:
    """The whole story. An image of the same identity is not built again, and nothing is published twice."""
    loaded = load(asked)
    evaluated(loaded, target)
    refuse_wrong(loaded.specs[target], run, console, with_publish=with_publish)
    lock = look_up(loaded, [target], lock_file, refresh=False, run=run, console=console)
    decision = decide(loaded, target, lock)
    folder = build_folder(decision.plan, out)
    with folder.claimed():
        write(render_tree(decision), folder)
        console.say(f"image {decision.plan.short_id} for {target}: {folder.tree}")
        tools = find_toolchain(decision.plan, run, console)
        check(decision.plan, tools, folder, run)
        with in_journal(decision.plan, folder.journal, out, run, console, on_error) as run:
            found = None if rebuild else find_built(decision.plan, run, console)
            if found is None:
                refuse_claimed(out, run)
            else:
                console.say(f"{target} has this image already: {found.id}")
                check_found(decision.plan, found, folder.report, store_in(out), run, console, with_publish=with_publish)
            built = found or build(decision.plan, tools, folder, run, console, on_error)
            made_by = tools if found is None else None
            # Recorded before it is published: if publishing fails, the next run completes this record.
            manifest = record(loaded, lock, decision, folder, made_by, built, None, run, out)
            if with_publish:
                published = publish(decision.plan, built, run, console)
                manifest = record(loaded, lock, decision, folder, made_by, built, published, run, out)
    return manifest


def publish_built(
    asked: Asked, target: str, *, lock_file: Path, out: Path, run: Run, console: Console
) -> ImageManifest:
    """Publish what was built before, found by the cloud's own tags."""
    loaded = load(asked)
    lock = read_lock_for(loaded, target, lock_file)
    decision = decide(loaded, target, lock)
    built = find_built(decision.plan, run, console)
    if built is None:
        message = f"{target} has no image {decision.plan.short_id}"
        command = f"imagegen build {shlex.quote(str(asked.file))} --target {target}"
        raise PublishError(message, hint=f"run `{command}` first")
    folder = build_folder(decision.plan, out)
    with folder.claimed():
        check_found(decision.plan, built, folder.report, store_in(out), run, console, with_publish=True)
        with in_journal(decision.plan, folder.journal, out, run, console) as run:
            published = publish(decision.plan, built, run, console)
        return record(loaded, lock, decision, folder, None, built, published, run, out)
