"""Decides whether an image may be published. Its machine's report is judged once. The verdict is a tag of the image.

Runs on other machines read the tag. The tag may be missing, because a run died or had no permission to write it. Then
the report decides if it is on this machine, and otherwise the manifest in the store. An image without any verdict is
not published.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.errors import BuildError, ImagegenError, RefusedError
from imagegen.manifest.record import PlannedImage
from imagegen.manifest.report import judge_report, rejected_report
from imagegen.manifest.store import LocalStore
from imagegen.plan.model import BuildPlan
from imagegen.providers import CloudImage, RunFacts
from imagegen.providers.provider import provider
from imagegen.providers.tags import ACCEPTED, REJECTED

if TYPE_CHECKING:
    from imagegen.console import Console

_REBUILD: Final = "build again with --rebuild; if the report is rejected again, the image is not as planned"


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
        reason = f": {rejection}" if rejection else ""
        raise RefusedError(f"the report of {found.id} was rejected, so it is not used{reason}", hint=_REBUILD)
    if report.exists():
        _tag(plan, found, ACCEPTED, run, console)
    elif with_publish and not _is_proven(image.store, plan, found, run):
        raise RefusedError(
            f"{found.id} is not published: its machine's report was never compared with the plan",
            hint="use the --out of the run that built it, or build again with --rebuild",
        )


def _find_rejection(plan: BuildPlan, report: Path) -> str | None:
    """Why this run or an earlier run rejects the report on this machine; None if it does not, or there is no report."""
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
