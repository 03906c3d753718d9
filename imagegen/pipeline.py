"""The whole product, in order: load -> lock -> resolve -> render -> write -> check -> build -> record -> publish.

Each command runs the first stages of this pipeline. `imagegen.plan.loading` is its first stage. The type of a value
shows its stage:
ImageConfig (loaded) -> PreparedTarget (settled) -> BuildPlan (resolved) -> tree (rendered) -> CloudImage (built) ->
Published -> ImageManifest.
"""

import dataclasses
import datetime
import functools
import shlex
from collections.abc import Mapping
from pathlib import Path

import imagegen
from imagegen.base.canonical import digest
from imagegen.base.console import Console
from imagegen.base.errors import BuildError, PublishError, RefusedError
from imagegen.base.files import write_tree
from imagegen.base.hosts import HostPolicy
from imagegen.build.doctor import reject_failed_checks
from imagegen.build.folders import BuildFolder
from imagegen.build.packer import CloudSide, OnError, build_on_first, build_tree, validate_tree
from imagegen.build.progress import show_build
from imagegen.build.toolchain import Toolchain
from imagegen.build.tools import find_tools
from imagegen.build.verdict import VerdictPipe
from imagegen.fetch.credentials import PrivateHosts, Ways, address_texts, encode_addresses
from imagegen.fetch.lock import Lock, StoredLock
from imagegen.fetch.locking import check_complete, look_up, read_stored_lock_for, verify_frozen, verify_lock
from imagegen.fetch.policy import download_credentials, host_policy
from imagegen.fetch.request import ArtifactRequest
from imagegen.leftovers.recording import record_in_journal, reject_claimed
from imagegen.oci.image_lookup import ImageRequest
from imagegen.oci.image_mirror import tarball_requests
from imagegen.oci.registry_credentials import builder_variable, read_credentials, secret_forms
from imagegen.plan.context import artifact_requests, credential_variables, evaluate_steps, image_requests
from imagegen.plan.loading import Loaded, reject_unimplemented
from imagegen.plan.model import BuildPlan
from imagegen.plan.release_record import with_release_record
from imagegen.plan.resolve import Decision, resolve
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.provider import Provider, provider
from imagegen.providers.storage import Sign, storages
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
from imagegen.settle.spec import Spec
from imagegen.settle.target_keys import errors_of
from imagegen.settle.trust import with_authorities
from imagegen.steps.evaluate import EvaluatedStep
from imagegen.trust.config_files import OwnFiles, check_own_files, find_own_files, trust_without_downloads
from imagegen.trust.crl_use import CrlUse
from imagegen.trust.policy import signature_requests, trust_sources
from imagegen.trust.shipped import read_shipped
from imagegen.trust.signature_request import SignatureRequest, TrustSources


@dataclasses.dataclass(frozen=True)
class PreparedTarget:
    """One target of a config, ready for `lock` and `plan`."""

    loaded: Loaded
    spec: Spec
    steps: tuple[EvaluatedStep, ...]

    @property
    def name(self) -> str:
        return self.spec.target

    @functools.cached_property
    def images(self) -> Mapping[str, ImageRequest]:
        """The container images that it puts on the machine, by their whole names."""
        return image_requests(self.steps, self.spec)

    def downloads(self, lock: Lock) -> Mapping[str, ArtifactRequest]:
        """Everything that the machine downloads, by name: artifacts, and tarballs of container images."""
        return artifact_requests(self.steps) | tarball_requests(self.images, lock.images)

    @functools.cached_property
    def signatures(self) -> Mapping[str, SignatureRequest]:
        """What must be signed in its artifacts, by their names."""
        return signature_requests(self.spec.config, self.steps)

    @functools.cached_property
    def own_files(self) -> tuple[OwnFiles, ...]:
        """The operator's own files whose signatures are judged."""
        # The first root is that of the shipped steps.
        return find_own_files(self.spec, self.steps, [own.folder for own in self.loaded.contents.step_roots[1:]])

    @property
    def trust_sources(self) -> TrustSources:
        """Where the roots of signatures come from, and what is revoked."""
        return trust_sources(self.spec)

    @property
    def cloud(self) -> Provider:
        return provider(self.spec.provider)

    @property
    def hosts(self) -> HostPolicy:
        """The hosts from which imagegen may download. All targets of a config have the same."""
        authorities = tuple(one.file.data for one in self.spec.authorities)
        return dataclasses.replace(host_policy(self.spec.config), authorities=authorities)

    @property
    def mirror_url(self) -> str | None:
        """The mirror of the config."""
        return self.spec.config.artifacts.mirror

    @property
    def credential_variables(self) -> dict[str, dict[str, str]]:
        """For each registry the names of the environment variables with its credentials."""
        return credential_variables(self.spec.config)

    @property
    def quarantine_days(self) -> int:
        """For how many days a new artifact is refused. All targets of a config have the same."""
        return self.spec.config.artifacts.quarantine_days

    def registry_credentials(self, run: RunFacts) -> dict[str, str]:
        """The credentials of its registries. A variable that is not set is an error with its name."""
        return read_credentials(self.credential_variables, run.environ)

    @property
    def download_credentials(self) -> Ways:
        """For each host with private artifacts the way to sign in."""
        return download_credentials(self.spec.config)

    def private_hosts(self, run: RunFacts) -> PrivateHosts:
        """The hosts whose files need credentials. Its check finds variables that are not set."""
        return find_private_hosts(self.download_credentials, run)


def find_private_hosts(ways: Ways, run: RunFacts) -> PrivateHosts:
    """The hosts whose files need credentials: those of the environment, or those of a cloud."""

    @functools.cache
    def signer(cloud: str) -> Sign:
        return storages()[cloud].signer(run)

    return PrivateHosts(ways, run.environ, lambda cloud, urls, valid_s: signer(cloud)(urls, valid_s))


def prepare_target(loaded: Loaded, name: str) -> PreparedTarget:
    """Evaluate the steps for one target. Settings that are not implemented yet are an error."""
    reject_unimplemented(loaded, [name])
    spec = loaded.specs[name]
    return PreparedTarget(loaded, spec, loaded.evaluated[name])


def decide(target: PreparedTarget, lock: Lock, crls: CrlUse | None = None) -> Decision:
    """The plan, and the contents of the files that it names. `crls` has the CRLs that were downloaded for this run."""
    spec, steps, crls = target.spec, target.steps, crls or CrlUse()
    if lock.needs_ca(request.url for request in target.downloads(lock).values()):
        spec = with_authorities(spec)
        steps = evaluate_steps(spec, target.loaded.steps)
    shipped = read_shipped(target.loaded.contents.packer, spec.provider)
    signatures = check_own_files(target.own_files, functools.partial(trust_without_downloads, spec, crls), crls)
    if spec.facts.all_signed:
        # The libraries that read signatures are slow to import.
        from imagegen.trust.own import sign_scripts
        from imagegen.trust.publishers import LockedDownloads

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


def find_toolchain(plan: BuildPlan, run: RunFacts, console: Console) -> Toolchain:
    """Find Packer and the plugin of the target's provider."""
    needed = provider(plan.image.provider).plugin_for(plan.settings, plan.image.versions)
    return find_tools(environ=run.environ, console=console, needed=[needed])


def check(plan: BuildPlan, tools: Toolchain, folder: BuildFolder, run: RunFacts) -> None:
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


def _builder_secrets(plan: BuildPlan, run: RunFacts) -> tuple[dict[str, str], tuple[str, ...]]:
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


def build(
    image: PlannedImage, tools: Toolchain, run: RunFacts, console: Console, on_error: OnError | None = None
) -> CloudImage:
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
            show_build(console, plan.build.target, drawn=not (on_error and on_error.ask)) as display,
        ):
            return build_tree(
                *(tools, folder.tree),
                environ=run.environ,
                variables={**variables, **verdict.variables, **secrets, "builder_size": size},
                log=folder.log,
                display=display,
                timeout_s=plan.build.longest_s,
                cloud=dataclasses.replace(_cloud_side(plan), secret_texts=hidden),
                on_error=on_error or OnError(),
                verdict=verdict,
            )

    try:
        sizes = cloud.builder_sizes(plan.settings)
        artifact = build_on_first(sizes, attempt, no_capacity=cloud.no_capacity, console=console)
    finally:
        if cloud.clean_up:
            cloud.clean_up(plan, variables, run, console)
    # By Packer's id, not by the image's identity: another machine may have built the same image at the same time.
    built = cloud.read_built(plan, artifact, run)
    if built is None:
        raise BuildError(
            "Packer's output has no id of the image",
            hint=f"read {folder.log}",
            details=[f"Packer says that it made: {artifact}"],
        )
    # Again: an image must not be accepted because Packer did not ask.
    accept_built(plan, built, judge_report(report, plan), run, console)
    return built


def record(
    image: PlannedImage, run: RunFacts, built: CloudImage, published: Published | None, build: FinishedBuild | None
) -> ImageManifest:
    """Store the manifest: the image, its inputs, where it is, and the report of the machine.

    The store keeps a record with a report rather than one of another image without: then this one is only returned.
    """
    made = make_manifest(image, run, built, published, build)
    kept = image.store.put(made)
    return kept if kept.is_of(built.id) else made


def check_and_lock(
    target: PreparedTarget,
    lock_file: Path,
    *,
    run: RunFacts,
    console: Console,
    with_publish: bool,
    frozen: bool,
    crls: CrlUse,
) -> StoredLock:
    """Check what the cloud allows, and complete the lock. With `frozen`, it must be complete already."""
    # Before the first request to the cloud: without the variables no build of this config can end well.
    target.registry_credentials(run)
    target.private_hosts(run).check()
    reject_failed_checks(target.spec, run, console, with_publish=with_publish)
    if frozen:
        return verify_frozen([target], lock_file, run=run, console=console)
    return look_up([target], lock_file, run=run, console=console, crls=crls)


def build_and_publish(
    target: PreparedTarget,
    *,
    lock_file: Path,
    out: Path,
    run: RunFacts,
    console: Console,
    rebuild: bool,
    with_publish: bool,
    on_error: OnError | None = None,
    frozen: bool = False,
    stored: StoredLock | None = None,
    crls: CrlUse | None = None,
) -> ImageManifest:
    """Run the whole pipeline. An existing image with the same identity is not built again or published twice.

    With `frozen`, the lock must be complete. `stored` is the result of `check_and_lock`, if that ran before."""
    crls = crls or CrlUse()
    if stored is None:
        how = {"with_publish": with_publish, "frozen": frozen}
        stored = check_and_lock(target, lock_file, run=run, console=console, crls=crls, **how)
    else:
        check_complete(target, stored.lock, lock_file)
    lock = stored.lock
    verify_lock(target, lock, lock_file, run=run, console=console, crls=crls)
    decision = decide(target, lock, crls)
    crls.warn_of_unused(console.warn)
    image = plan_image(target, stored, decision, out)
    plan, folder = image.plan, image.folder
    with folder.claimed(), errors_of(target.spec):
        write_tree(render_tree(decision), folder.tree)
        console.say(f"image {plan.short_id} for {target.name}: {folder.tree}")
        tools = find_toolchain(plan, run, console)
        check(plan, tools, folder, run)
        with record_in_journal(plan, folder.journal, out, run, console, on_error) as run:
            built, finished = find_usable(image, run, console, rebuild=rebuild), None
            if built is None:
                reject_claimed(out, run)
                built = build(image, tools, run, console, on_error)
                finished = FinishedBuild(tools, f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}")
            # Recorded before it is published: if publishing fails, the next run completes this record.
            manifest = record(image, run, built, None, finished)
            if with_publish:
                manifest = record(image, run, built, target.cloud.publish(plan, built, run, console), finished)
    warn_of_kept_record(image, manifest, console)
    return manifest


def publish_built(
    target: PreparedTarget, *, lock_file: Path, out: Path, run: RunFacts, console: Console
) -> ImageManifest:
    """Publish an image that an earlier run built. It is found by its tags in the cloud."""
    stored = read_stored_lock_for(target, lock_file)
    image = plan_image(target, stored, decide(target, stored.lock), out)
    with errors_of(target.spec):
        built = find_built(image.plan, run, console)
    if built is None:
        raise PublishError(
            f"{target.name} has no image {image.plan.short_id}",
            hint=f"run `imagegen build {shlex.quote(str(target.loaded.file))} --target {target.name}` first",
        )
    with image.folder.claimed(), errors_of(target.spec):
        if why := check_found(image, built, run, console):
            raise RefusedError(why, hint="use the --out of the run that built it, or build again: `imagegen build`")
        with record_in_journal(image.plan, image.folder.journal, out, run, console) as run:
            published = target.cloud.publish(image.plan, built, run, console)
        manifest = record(image, run, built, published, None)
    warn_of_kept_record(image, manifest, console)
    return manifest
