"""Makes the manifest of an image from the results of a run, and decides whether the image may be published.

The report of an image's machine is judged once. The verdict is a tag of the image, so that runs on other machines can
read it. The tag may be missing, because a run was killed or had no permission to write it. Then the report decides if
it is on this machine, and otherwise the manifest in the store. An image without any verdict is not published.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import imagegen
from imagegen.artifacts.lock import LockedBase
from imagegen.artifacts.request import shown_url
from imagegen.build.folders import BuildFolder
from imagegen.build.toolchain import Toolchain
from imagegen.console import Console
from imagegen.errors import BuildError, ImagegenError, RefusedError
from imagegen.manifest.model import (
    ImageManifest,
    Inputs,
    Plugin,
    RecordedArtifact,
    RecordedImage,
    RecordedPublish,
    Tools,
)
from imagegen.manifest.report import judge_report, read_report, rejected_report
from imagegen.manifest.store import LocalStore
from imagegen.plan.model import BuildPlan
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.provider import provider
from imagegen.providers.tags import ACCEPTED, REJECTED

_REBUILD: Final = "build again with --rebuild; if the report is rejected again, the image is not as planned"


@dataclasses.dataclass(frozen=True)
class PlannedImage:
    """What is known of an image before it is built: its plan, what the plan was made from, where its files go."""

    plan: BuildPlan
    config_file: str
    config_sha256: str
    """Of the canonical config."""
    base_request: Mapping[str, str]
    folder: BuildFolder
    out: Path

    @property
    def store(self) -> LocalStore:
        """The store that has its manifest."""
        return LocalStore(self.out / "manifests")


def make_manifest(
    image: PlannedImage, run: RunFacts, built: CloudImage, published: Published | None, tools: Toolchain | None
) -> ImageManifest:
    """The manifest of an image. `tools` is None if this run did not build it."""
    plan, plugin = image.plan, provider(image.plan.image.provider).plugin.name
    report, missing = read_report(image.folder.report, plan)
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
            artifacts={
                name: RecordedArtifact(url=shown_url(plan.build.downloads[name]), sha256=file.sha256, size=file.size)
                for name, file in plan.image.artifacts.items()
            },
            stated=dict(plan.build.stated),
        ),
        versions=dict(plan.image.versions),
        tools=Tools(packer=tools.packer_version, plugin=Plugin(name=plugin, version=tools.plugins[plugin].version))
        if tools
        else None,
        built=RecordedImage.of(built),
        published=RecordedPublish.of(published) if published else None,
        report=report,
        report_missing=missing,
    )


def accept_built(plan: BuildPlan, built: CloudImage, rejection: str | None, run: RunFacts, console: Console) -> None:
    """Tag the image that this run built. A rejected report is a BuildError with the reason."""
    _tag(plan, built, REJECTED if rejection else ACCEPTED, run, console)
    if rejection:
        raise BuildError(f"the image was built but is not published: {rejection}", hint=_REBUILD)


def check_found(image: PlannedImage, found: CloudImage, run: RunFacts, console: Console, *, with_publish: bool) -> None:
    """Refuse an existing image whose report was rejected, and for publishing also one that no run has judged."""
    if found.report == ACCEPTED:
        return
    plan, report = image.plan, image.folder.report
    rejection = None if found.report else _find_rejection(plan, report)
    if found.report or rejection:
        if not found.report:
            _tag(plan, found, REJECTED, run, console)
        raise RefusedError(
            f"the report of {found.id} was rejected, so it is not used" + (f": {rejection}" if rejection else ""),
            hint=_REBUILD,
        )
    if report.exists():
        _tag(plan, found, ACCEPTED, run, console)
    elif with_publish and not _is_proven(image.store, plan, found, run):
        raise RefusedError(
            f"{found.id} is not published: its machine's report was never compared with the plan",
            hint="use the --out of the run that built it, or build again with --rebuild",
        )


def _find_rejection(plan: BuildPlan, report: Path) -> str | None:
    """Why this or an earlier run rejects the report on this machine. None if none does, or if there is no report."""
    if rejected_report(report).exists():
        return f"see {rejected_report(report)}"
    return judge_report(report, plan) if report.exists() else None


def _is_proven(store: LocalStore, plan: BuildPlan, found: CloudImage, run: RunFacts) -> bool:
    """Whether the stored manifest of this image has its report, or says that it is published."""
    recorded = store.get(plan.build.name, plan.build.target, plan.image_id, run.labels)
    if recorded is None or recorded.built is None or recorded.built.id != found.id:
        return False
    return recorded.report is not None or recorded.published is not None


def _tag(plan: BuildPlan, image: CloudImage, report: str, run: RunFacts, console: Console) -> None:
    try:
        provider(plan.image.provider).mark(plan, image, report, run)
    except ImagegenError as error:
        # Only a warning: runs on this machine have the report itself.
        console.warn(f"{image.id} could not be tagged as {report}, so other machines will not know: {error.message}")
