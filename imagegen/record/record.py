"""Makes the manifest of an image from the results of a run, and decides whether the image may be published.

The report of an image's machine is judged before Packer captures the machine: a rejected report makes no image. The
verdict is a tag of the image, so that runs on other machines can read it. The tag may be missing, because a run was
killed, had no permission to write it, or used Packer without imagegen. Then the report of the image's own run decides
if it is on this machine, and otherwise the manifest in the store. An image without any verdict is not used.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pydantic

import imagegen
from imagegen.base.console import Console
from imagegen.base.errors import BuildError, ConfigError, ImagegenError, RefusedError
from imagegen.base.files import read_file
from imagegen.build.packer import BuildFolder
from imagegen.build.tools import Toolchain
from imagegen.fetch.lock import Lock, LockedBase
from imagegen.fetch.request import ArtifactRequest, shown_url
from imagegen.plan.model import BuildPlan
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.provider import provider
from imagegen.providers.tags import ACCEPTED, REJECTED, run_ids
from imagegen.record.manifest import (
    ImageManifest,
    Inputs,
    Json,
    Plugin,
    RecordedArtifact,
    RecordedFile,
    RecordedImage,
    RecordedPublish,
    RecordedSignature,
    Tools,
)
from imagegen.record.report import GuestReport, reported_sizes
from imagegen.record.store import LocalStore
from imagegen.render import guest_plan
from imagegen.run import Run
from imagegen.steps.release_record import RESOURCE

_LIMIT_BYTES = 32 * 2**20
# A run id is a tag of the image, and becomes the name of a file.
_RUN_ID = re.compile(r"[0-9a-z-]{1,100}")


def read_report(file: Path, plan: BuildPlan) -> tuple[Json | None, str | None]:
    """The report as JSON, or the reason why there is no valid report of this plan."""
    try:
        text = read_file(file, limit=_LIMIT_BYTES)
        if not text.strip():
            return None, f"Packer brought no report of the machine: {file} is empty"
        data = json.loads(text)
        report = GuestReport.model_validate(data)
    except FileNotFoundError:
        return None, f"Packer brought no report of the machine: there is no {file}"
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole report"
        return None, f"the report is not valid for this version of imagegen: {place}: {first['msg']}"
    except ConfigError as error:
        return None, error.message
    except (ValueError, RecursionError) as error:
        return None, f"the report is not valid JSON: {error}"
    if differences := _differences(report, plan):
        return None, f"the report is of another build: {'; '.join(differences)}"
    return data, None


def judge_report(file: Path, plan: BuildPlan) -> str | None:
    """Why the machine's report is rejected; None if it is of this plan and has all its resources."""
    return read_report(file, plan)[1]


def _differences(report: GuestReport, plan: BuildPlan) -> list[str]:
    phases = plan.image.phases
    # The machine says which release record it has: another version of imagegen makes another record of the same image.
    installed = dataclasses.replace(plan, release_record=_installed_record(report) or plan.release_record)
    compared = (
        ("plan_sha256", report.plan_sha256, hashlib.sha256(guest_plan(installed)).hexdigest()),
        ("name", report.name, plan.build.name),
        ("target", report.target, plan.image.provider),
        ("phases", [phase.name for phase in report.phases], [phase.name for phase in phases]),
    )
    differences = [f"{name} is {found}, not {wanted}" for name, found, wanted in compared if found != wanted]
    reported = [resource.id for resource in report.resources]
    planned = [resource.id for phase in phases for resource in phase.resources()]
    if reported != planned:
        odd = sorted(set(reported) ^ set(planned)) or ["their order"]
        differences.append(f"its resources differ from the plan's: {', '.join(odd[:3])}")
    if report.signatures.keys() != plan.build.signatures.keys():
        differences.append("its signatures are not those of the plan")
    return differences


def _installed_record(report: GuestReport) -> str:
    """The sha256 of the release record on the machine. Empty if there is none."""
    found = next((resource.facts for resource in report.resources if resource.id == RESOURCE), None)
    return str((found or {}).get("sha256", ""))


@dataclasses.dataclass(frozen=True)
class PlannedImage:
    """What is known of an image before it is built: its plan, what the plan was made from, where its files go."""

    plan: BuildPlan
    config_file: str
    config_sha256: str
    """Of the canonical config."""
    lock_sha256: str
    """Of the bytes of the lock."""
    base_request: Mapping[str, str]
    artifacts: Mapping[str, RecordedArtifact]
    folder: BuildFolder
    out: Path

    @property
    def store(self) -> LocalStore:
        """The store that has its manifest."""
        return LocalStore(self.out / "manifests")

    def find_report(self, runs: Sequence[str]) -> Path | None:
        """The report of the machine that one of these runs built; None if it is not on this machine."""
        files = (self.folder.report(run) for run in runs if _RUN_ID.fullmatch(run))
        return next((file for file in files if file.exists()), None)


def _digest_of(image: Mapping[str, object]) -> str:
    """By which a container image was pulled. One of a tarball was not, and has what its runtime shows."""
    return str(image["reference"]).partition("@")[2] if image["reference"] else str(image["digest"])


@dataclasses.dataclass(frozen=True)
class FinishedBuild:
    """With which tools this run built the image, and when it was built."""

    tools: Toolchain
    finished: str


def record_artifacts(
    plan: BuildPlan, requests: Mapping[str, ArtifactRequest], lock: Lock
) -> dict[str, RecordedArtifact]:
    """The artifacts of an image, with the release that each is and the signatures that the lock has."""
    recorded = {}
    for name, file in plan.image.artifacts.items():
        request, url = requests[name], shown_url(plan.build.downloads[name])
        release = shown_url(request.published)
        signed = lock.artifacts[name].signed or {}
        recorded[name] = RecordedArtifact(
            url=url,
            sha256=file.sha256,
            size=file.size,
            product=request.product or None,
            version=request.version if request.product else None,
            release=release if release != url else None,
            signed={
                path: RecordedSignature(signer=one.signer, thumbprint=one.thumbprint, timestamp=one.timestamp)
                for path, one in signed.items()
            },
        )
    return recorded


def _with_files(
    artifacts: Mapping[str, RecordedArtifact], plan: BuildPlan, report: Json | None
) -> dict[str, RecordedArtifact]:
    """The artifacts with the files that the image has of them."""
    sizes = reported_sizes(report) if report else {}
    files: dict[str, dict[str, RecordedFile]] = {name: {} for name in artifacts}
    for resource in (resource for phase in plan.image.phases for resource in phase.resources()):
        for path, sha256 in resource.downloaded.items():
            files[str(resource.fields["artifact"])][path] = RecordedFile(sha256=sha256, size=sizes.get(sha256))
    return {name: one.model_copy(update={"files": files[name]}) for name, one in artifacts.items()}


def make_manifest(
    image: PlannedImage, run: RunFacts, built: CloudImage, published: Published | None, build: FinishedBuild | None
) -> ImageManifest:
    """The manifest of an image. `build` is None if this run did not build it."""
    plan = image.plan
    runs = [run.id] if build else run_ids(built.runs)
    file = image.find_report(runs)
    elsewhere = f"run {runs[-1] or 'of an unknown id'} made the image, and its report is not on this machine"
    report, missing = read_report(file, plan) if file else (None, elsewhere)
    return ImageManifest(
        name=plan.build.name,
        image_id=plan.image_id,
        target=plan.build.target,
        provider=plan.image.provider,
        labels=dict(run.labels),
        created=run.started,
        imagegen_version=imagegen.__version__,
        inputs=Inputs(
            config_file=image.config_file,
            config_sha256=image.config_sha256,
            base=LockedBase(
                request=dict(image.base_request), identity=dict(plan.image.base), place=dict(plan.build.base_place)
            ),
            artifacts=_with_files(image.artifacts, plan, report),
            images={
                str(resource.fields["name"]): _digest_of(resource.fields)
                for phase in plan.image.phases
                for resource in phase.resources()
                if resource.kind == "image"
            },
            stated=dict(plan.build.stated),
            first_boot=sorted(
                resource.id for phase in plan.image.phases for resource in phase.resources() if resource.until
            ),
            lock_sha256=image.lock_sha256,
        ),
        versions=dict(plan.image.versions),
        tools=_recorded_tools(build.tools, plan) if build else None,
        run_id=run.id if build else None,
        finished=build.finished if build else None,
        built=RecordedImage.of(built),
        published=RecordedPublish.of(published) if published else None,
        report=report,
        report_missing=missing,
    )


def warn_of_kept_record(image: PlannedImage, manifest: ImageManifest, console: Console) -> None:
    """Warn if the store keeps the record of another image, because that one has the report of its machine."""
    kept = image.store.get(manifest.name, manifest.target, manifest.image_id, manifest.labels)
    if kept and kept.built and manifest.built and not kept.is_of(manifest.built.id):
        console.warn(
            f"the store keeps the manifest of {kept.built.id}: that of {manifest.built.id} has no report, because "
            f"{manifest.report_missing}"
        )


def _recorded_tools(tools: Toolchain, plan: BuildPlan) -> Tools:
    plugin = provider(plan.image.provider).plugin.name
    return Tools(packer=tools.packer_version, plugin=Plugin(name=plugin, version=tools.plugins[plugin].version))


def accept_built(plan: BuildPlan, built: CloudImage, rejection: str | None, run: Run) -> None:
    """Tag the image that this run built. A rejected report is a BuildError with the reason."""
    verdict = REJECTED if rejection else ACCEPTED
    if built.report != verdict:
        _tag(plan, built, verdict, run)
    if rejection:
        hint = provider(plan.image.provider).build_again(plan, built)
        raise BuildError(f"the image was built but is not published: {rejection}", hint=hint)


def find_built(plan: BuildPlan, run: Run) -> CloudImage | None:
    """Find the image of this plan in the build region, and warn of images that failed or were rejected."""
    found = provider(plan.image.provider).find_built(plan, run)
    for unusable in found.unusable:
        run.console.warn(unusable)
    return found.image


def find_usable(image: PlannedImage, run: Run, *, rebuild: bool) -> CloudImage | None:
    """The existing image of this plan. None if there is none, if nobody can judge it, or with `rebuild`."""
    found = find_built(image.plan, run)
    if found is None or rebuild:
        return None
    run.console.say(f"{image.plan.build.target} has this image already: {found.id}")
    if why := check_found(image, found, run):
        run.console.warn(f"{why}: building another one")
        return None
    return found


def check_found(image: PlannedImage, found: CloudImage, run: Run) -> str:
    """Why an existing image cannot be judged, so that it is not used; empty if it is accepted.

    A rejected image is refused: it is not built again and again, every night, without anybody looking at it.
    """
    if found.report == ACCEPTED:
        return ""
    plan, report = image.plan, image.find_report(run_ids(found.runs))
    rejection = judge_report(report, plan) if report and not found.report else None
    if rejection:
        _tag(plan, found, REJECTED, run)
    if found.report or rejection:
        raise RefusedError(
            f"the report of {found.id} was rejected, so it is not used" + (f": {rejection}" if rejection else ""),
            hint=provider(plan.image.provider).build_again(plan, found),
        )
    if report:
        _tag(plan, found, ACCEPTED, run)
    elif not _is_proven(image.store, plan, found, run):
        return (
            f"{found.id} is not used: its machine's report was never compared with the plan, and is not on this machine"
        )
    return ""


def _is_proven(store: LocalStore, plan: BuildPlan, found: CloudImage, run: Run) -> bool:
    """Whether the stored manifest of this image has its report, or says that it is published."""
    recorded = store.get(plan.build.name, plan.build.target, plan.image_id, run.labels)
    if recorded is None or recorded.built is None or recorded.built.id != found.id:
        return False
    return recorded.report is not None or recorded.published is not None


def _tag(plan: BuildPlan, image: CloudImage, report: str, run: Run) -> None:
    try:
        provider(plan.image.provider).mark(plan, image, report, run)
    except ImagegenError as error:
        # Only a warning: runs on this machine have the report itself.
        run.console.warn(
            f"{image.id} could not be tagged as {report}, so other machines will not know: {error.message}"
        )
