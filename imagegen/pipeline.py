"""The whole product, in order: load -> lock -> resolve -> render -> write -> check -> build -> record -> publish.

Each command runs the first stages of this pipeline. `imagegen.plan.loading` and `imagegen.plan.target` are its first
stage. The type of a value shows its stage:
ImageConfig (loaded) -> PreparedTarget (settled) -> BuildPlan (resolved) -> tree (rendered) -> CloudImage (built) ->
Published -> ImageManifest.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from pathlib import Path

import imagegen
from imagegen.base.canonical import digest
from imagegen.base.errors import BuildError, PublishError, RefusedError
from imagegen.base.files import write_tree
from imagegen.build.display import show_build
from imagegen.build.doctor import reject_failed_checks
from imagegen.build.packer import (
    BuildFolder,
    CloudSide,
    PackerBuild,
    VerdictPipe,
    build_on_first,
    build_tree,
    validate_tree,
)
from imagegen.build.tools import Toolchain, find_tools
from imagegen.fetch.credentials import address_texts, encode_addresses
from imagegen.fetch.lock import Lock, StoredLock
from imagegen.fetch.locking import check_complete, look_up, read_stored_lock_for, verify_frozen, verify_lock
from imagegen.leftovers.sweep import record_in_journal, reject_claimed
from imagegen.oci.registry import builder_variable, read_credentials, secret_forms
from imagegen.plan.context import evaluate_steps
from imagegen.plan.loading import Loaded, reject_unimplemented
from imagegen.plan.model import BuildPlan
from imagegen.plan.release_record import with_release_record
from imagegen.plan.resolve import Decision, resolve
from imagegen.plan.target import PreparedTarget, find_private_hosts
from imagegen.providers import CloudImage, Published
from imagegen.providers.provider import provider
from imagegen.record.manifest import ImageManifest
from imagegen.record.record import (
    FinishedBuild,
    PlannedImage,
    accept_built,
    check_found,
    find_built,
    find_usable,
    judge_report,
    make_manifest,
    record_artifacts,
    warn_of_kept_record,
)
from imagegen.render import CREDENTIALS_VARIABLE, DOWNLOADS_VARIABLE, render
from imagegen.run import Run
from imagegen.settle.spec import errors_of, with_authorities
from imagegen.trust.judge import check_own_files
from imagegen.trust.scripts import LockedDownloads, sign_scripts
from imagegen.trust.shipped import read_shipped
from imagegen.trust.sources import CrlUse, trust_without_downloads


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """What a user chose for the builds of one command."""

    lock_file: Path
    frozen: bool = False
    """Whether the lock must be complete, so that nothing is looked up."""
    rebuild: bool = False
    with_publish: bool = True
    on_error: str = "cleanup"
    """What Packer does with its machine when the build fails: `cleanup` or `abort`."""


def build(target: PreparedTarget, options: BuildOptions, run: Run, stored: StoredLock | None = None) -> ImageManifest:
    """Run the whole pipeline. An existing image with the same identity is not built again or published twice.

    `stored` is the result of `check_and_lock`, if that ran before."""
    stored = check_locked(target, stored) if stored else check_and_lock(target, options, run)
    verify_lock(target, stored, run)
    decision = decide(target, stored.lock, run.crls)
    image = plan_image(target, stored, decision, run.out)
    plan, folder, published = image.plan, image.folder, None
    with folder.claimed(), errors_of(target.spec):
        write_tree(render_tree(decision), folder.tree)
        run.console.say(f"image {plan.short_id} for {target.name}: {folder.tree}")
        tools = find_toolchain(plan, run)
        check(plan, tools, folder, run)
        with record_in_journal(plan, folder.journal, run, options.on_error) as run:
            built, finished = find_usable(image, run, rebuild=options.rebuild), None
            if built is None:
                reject_claimed(run)
                built = build_image(image, tools, run, options.on_error)
                finished = FinishedBuild(tools, f"{run.clock():%Y-%m-%dT%H:%M:%SZ}")
            # Recorded before it is published: if publishing fails, the next run completes this record.
            manifest = record(image, run, built, published, finished)
            if options.with_publish:
                published = target.cloud.publish(plan, built, run, run.console)
                manifest = record(image, run, built, published, finished)
    warn_of_kept_record(image, manifest, run.console)
    return manifest


def prepare_target(loaded: Loaded, name: str) -> PreparedTarget:
    """Evaluate the steps for one target. Settings that are not implemented yet are an error."""
    reject_unimplemented(loaded, [name])
    spec = loaded.specs[name]
    return PreparedTarget(loaded, spec, loaded.evaluated[name])


def publish_built(target: PreparedTarget, lock_file: Path, run: Run) -> ImageManifest:
    """Publish an image that an earlier run built. It is found by its tags in the cloud."""
    stored = read_stored_lock_for(target, lock_file)
    image = plan_image(target, stored, decide(target, stored.lock), run.out)
    with errors_of(target.spec):
        built = find_built(image.plan, run)
    if built is None:
        raise PublishError(
            f"{target.name} has no image {image.plan.short_id}",
            hint=f"run `imagegen build {shlex.quote(str(target.loaded.file))} --target {target.name}` first",
        )
    with image.folder.claimed(), errors_of(target.spec):
        if why := check_found(image, built, run):
            raise RefusedError(why, hint="use the --out of the run that built it, or build again: `imagegen build`")
        with record_in_journal(image.plan, image.folder.journal, run) as run:
            published = target.cloud.publish(image.plan, built, run, run.console)
        manifest = record(image, run, built, published, None)
    warn_of_kept_record(image, manifest, run.console)
    return manifest


def check_and_lock(target: PreparedTarget, options: BuildOptions, run: Run) -> StoredLock:
    """Check what the cloud allows, and complete the lock. With `frozen`, it must be complete already."""
    # Before the first request to the cloud: without the variables no build of this config can end well.
    target.registry_credentials(run)
    target.private_hosts(run).check()
    reject_failed_checks(target.spec, run, with_publish=options.with_publish)
    return (verify_frozen if options.frozen else look_up)([target], options.lock_file, run)


def check_locked(target: PreparedTarget, stored: StoredLock) -> StoredLock:
    """A lock that was completed for several targets, and must have everything for this one."""
    check_complete(target, stored.lock, stored.file)
    return stored


def decide(target: PreparedTarget, lock: Lock, crls: CrlUse | None = None) -> Decision:
    """The plan, and the contents of the files that it names. `crls` has the CRLs that were downloaded for this run."""
    spec, steps, crls = target.spec, target.steps, crls or CrlUse()
    if lock.needs_ca(request.url for request in target.downloads(lock).values()):
        spec = with_authorities(spec)
        steps = evaluate_steps(spec, target.loaded.steps)
    shipped = read_shipped(target.loaded.contents.packer, spec.provider)
    signatures = check_own_files(target.own_files, functools.partial(trust_without_downloads, spec, crls), crls)
    if spec.facts.all_signed:
        advice = sign_advice(target.loaded.file, target.name)
        downloads = LockedDownloads(target.signatures, lock.artifacts)
        to_sign = shipped.to_sign(target.cloud.boot_files)
        signed = sign_scripts(spec, target.loaded.steps, to_sign, advice, downloads, crls)
        spec, steps, signatures = signed.spec, signed.steps, {**signatures, **signed.signatures}
        shipped = shipped.signed(signed.take)
    decision = resolve(spec, lock, steps, shipped.guest, shipped.scripts, shipped.templates)
    build = dataclasses.replace(decision.plan.build, signatures={**decision.plan.build.signatures, **signatures})
    plan = dataclasses.replace(decision.plan, build=build)
    return with_release_record(dataclasses.replace(decision, plan=plan, helpers=shipped.helpers))


def sign_advice(config: Path, target: str) -> str:
    """What to do about scripts that are not signed."""
    command = f"imagegen sign-list {shlex.quote(str(config))} --target {shlex.quote(target)} --out DIR"
    return f"run `{command}`, sign the files in DIR, and move them there"


def render_tree(decision: Decision) -> dict[str, bytes]:
    """The exact files that Packer reads."""
    return render(decision, provider(decision.plan.image.provider))


def build_folder(plan: BuildPlan, out: Path) -> BuildFolder:
    """The folder of this image: out/<name>/<id>, or out/<name>/<id>-<target> if the target is not named after its
    provider. Targets with the same settings have the same id, but each has its own machine and its own report."""
    own = "" if plan.build.target == plan.image.provider else f"-{plan.build.target}"
    return BuildFolder((out / plan.build.name / f"{plan.short_id}{own}").absolute())


def find_toolchain(plan: BuildPlan, run: Run) -> Toolchain:
    """Find Packer and the plugin of the target's provider."""
    needed = provider(plan.image.provider).plugin_for(plan.settings, plan.image.versions)
    return find_tools(environ=run.environ, console=run.console, needed=[needed])


def check(plan: BuildPlan, tools: Toolchain, folder: BuildFolder, run: Run) -> None:
    """Validate the tree with Packer; an error holds Packer's reason."""
    validate_tree(tools, folder.tree, environ=run.environ, cloud=_cloud_side(plan))


def _cloud_side(plan: BuildPlan) -> CloudSide:
    cloud = provider(plan.image.provider)
    secrets = cloud.secret_variables(plan.settings) if cloud.secret_variables else frozenset[str]()
    return CloudSide(cloud.environment, secrets, cloud.traces, cloud.advice)


def plan_image(target: PreparedTarget, stored: StoredLock, decision: Decision, out: Path) -> PlannedImage:
    """Everything that is known about the image before its build starts."""
    lock = stored.lock
    return PlannedImage(
        plan=decision.plan,
        config_file=target.loaded.file.name,
        config_sha256=digest(target.loaded.config.model_dump(mode="json")),
        lock_sha256=stored.sha256,
        base_request=lock.base_images[target.name].request,
        artifacts=record_artifacts(decision.plan, target.downloads(lock), lock),
        folder=build_folder(decision.plan, out),
        out=out,
    )


def _builder_secrets(plan: BuildPlan, run: Run) -> tuple[dict[str, str], tuple[str, ...]]:
    """Packer's variables with secrets for the builder, and every text of them that no output may have."""
    registries = read_credentials(plan.build.registry_credentials, run.environ)
    urls = plan.build.private_downloads
    made = find_private_hosts(plan.build.download_credentials, run).lasting(urls.values(), plan.downloads_s)
    variables = {
        CREDENTIALS_VARIABLE: builder_variable(registries, for_docker="docker" in plan.image.versions),
        DOWNLOADS_VARIABLE: encode_addresses({name: made[url] for name, url in urls.items()}),
    }
    # The tree declares only the variables that it uses.
    texts = (*secret_forms(registries), *address_texts(made.values()))
    return {name: value for name, value in variables.items() if value}, texts


def build_image(image: PlannedImage, tools: Toolchain, run: Run, on_error: str = "cleanup") -> CloudImage:
    """Build the image in the build region with Packer, on the first builder size that is available."""
    plan, folder, cloud = image.plan, image.folder, provider(image.plan.image.provider)
    report = folder.report(run.id)
    variables = {**run.variables, "imagegen_version": imagegen.__version__, "report_file": str(report)}
    if cloud.build_variables:
        variables |= cloud.build_variables(plan, run)

    def attempt(size: str) -> str:
        # For each attempt, because signed addresses are valid for the time of one build.
        secrets, hidden = _builder_secrets(plan, run)
        with (
            VerdictPipe(folder.verdict_pipe, lambda: judge_report(report, plan)) as verdict,
            show_build(run.console, plan.build.target) as display,
        ):
            job = PackerBuild(
                *(folder.tree, folder.log, plan.build.longest_s),
                variables={**variables, **verdict.variables, **secrets, "builder_size": size},
                cloud=dataclasses.replace(_cloud_side(plan), secret_texts=hidden),
                on_error=on_error,
                verdict=verdict,
            )
            return build_tree(tools, job, environ=run.environ, display=display)

    try:
        sizes = cloud.builder_sizes(plan.settings)
        artifact = build_on_first(sizes, attempt, no_capacity=cloud.no_capacity, console=run.console)
    finally:
        if cloud.clean_up:
            cloud.clean_up(plan, variables, run, run.console)
    # By Packer's id, not by the image's identity: another machine may have built the same image at the same time.
    built = cloud.read_built(plan, artifact, run)
    if built is None:
        raise BuildError(
            "Packer's output has no id of the image",
            hint=f"read {folder.log}",
            details=[f"Packer says that it made: {artifact}"],
        )
    # Again: an image must not be accepted because Packer did not ask.
    accept_built(plan, built, judge_report(report, plan), run)
    return built


def record(
    image: PlannedImage, run: Run, built: CloudImage, published: Published | None, build: FinishedBuild | None
) -> ImageManifest:
    """Store the manifest: the image, its inputs, where it is, and the report of the machine.

    The store keeps a record with a report rather than one of another image without: then this one is only returned.
    """
    made = make_manifest(image, run, built, published, build)
    kept = image.store.put(made)
    return kept if kept.is_of(built.id) else made
