"""Whether an image may be published. Its machine's report is judged once, and the verdict is a tag of the image.

The tag tells a run on another machine. Where it is missing, because the run died or was not allowed to write it, the
report itself decides if it is on this machine, and otherwise the record in the store: an image that nobody has judged
is not published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.errors import BuildError, ImagegenError, RefusedError
from imagegen.manifest.report import ExpectedReport, judge_report, rejected_report
from imagegen.providers import provider
from imagegen.providers.tags import ACCEPTED, REJECTED
from imagegen.render.bundle import guest_plan

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.console import Console
    from imagegen.manifest.store import LocalStore
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Run

_REBUILD: Final = "build again with --rebuild; if the report is wrong again, the image is not what was planned"


def accept_built(plan: BuildPlan, built: CloudImage, rejection: str | None, run: Run, console: Console) -> None:
    """Tag the image that this run built; BuildError where its report was rejected, with the reason."""
    _mark(plan, built, REJECTED if rejection else ACCEPTED, run, console)
    if rejection:
        raise BuildError(f"the image was built, and is not published: {rejection}", hint=_REBUILD)


def check_found(
    plan: BuildPlan,
    found: CloudImage,
    report: Path,
    store: LocalStore,
    run: Run,
    console: Console,
    *,
    with_publish: bool,
) -> None:
    """Refuse an image in the cloud that was rejected, and `with_publish` one that no run has judged."""
    if found.report == ACCEPTED:
        return
    rejection = None if found.report else _reason_here(plan, report)
    if found.report or rejection:
        if not found.report:
            _mark(plan, found, REJECTED, run, console)
        reason = f": {rejection}" if rejection else ""
        raise RefusedError(f"the report of {found.id} was rejected, so it is not used{reason}", hint=_REBUILD)
    if report.exists():
        _mark(plan, found, ACCEPTED, run, console)
    elif with_publish and not _is_proven(store, plan, found, run):
        raise RefusedError(
            f"{found.id} is not published: no run has compared its machine's report with the plan",
            hint="use the --out of the run that built it, or build again with --rebuild",
        )


def expected_report(plan: BuildPlan) -> ExpectedReport:
    """What the machine of this plan must say."""
    return ExpectedReport.of(plan, guest_plan(plan))


def _reason_here(plan: BuildPlan, report: Path) -> str | None:
    """Why the report on this machine is rejected, now or by an earlier run; None without any."""
    if rejected_report(report).exists():
        return f"see {rejected_report(report)}"
    return judge_report(report, expected_report(plan)) if report.exists() else None


def _is_proven(store: LocalStore, plan: BuildPlan, found: CloudImage, run: Run) -> bool:
    """Whether the record of this very image holds its report, or says that it is published."""
    recorded = store.get(plan.build.name, plan.build.target, plan.image_id, run.labels)
    if recorded is None or recorded.built is None or recorded.built.id != found.id:
        return False
    return recorded.report is not None or recorded.published is not None


def _mark(plan: BuildPlan, image: CloudImage, report: str, run: Run, console: Console) -> None:
    try:
        provider(plan.image.provider).mark(plan, image, report, run)
    except ImagegenError as error:
        # What the report says is known here; only a run on another machine has to do without it.
        console.warn(f"{image.id} could not be tagged as {report}, which other machines go by: {error.message}")
