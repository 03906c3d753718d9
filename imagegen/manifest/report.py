"""Reads report.json, which the machine writes at the end of a build, and compares it with the plan. Trusts no field."""

import hashlib
import json
from pathlib import Path
from typing import Literal

import pydantic

from imagegen.errors import ConfigError
from imagegen.files import read_file, write_file
from imagegen.plan.model import BuildPlan
from imagegen.render import guest_plan
from imagegen.resources.model import Strict

Json = dict[str, pydantic.JsonValue]

_LIMIT_BYTES = 32 * 2**20


class ReportedPhase(Strict):
    """A phase that the machine ran."""

    name: str
    status: Literal["finished"]
    changed: int
    restart: bool
    ms: int


class ReportedResource(Strict):
    """A resource that is as planned. Any other resource fails the build, so that there is no report."""

    id: str
    phase: str
    step: str
    kind: str
    status: Literal["ok", "changed"]
    ms: int
    facts: Json | None


class GuestReport(Strict):
    """The whole report (docs/guest.md)."""

    report_version: Literal[1]
    plan_sha256: str
    name: str
    target: str
    machine: Json
    phases: list[ReportedPhase]
    resources: list[ReportedResource]


def read_report(file: Path, plan: BuildPlan) -> tuple[Json | None, str | None]:
    """The report as JSON, or the reason why there is no valid report of this plan."""
    try:
        data = json.loads(read_file(file, limit=_LIMIT_BYTES))
        report = GuestReport.model_validate(data)
    except FileNotFoundError:
        return None, f"there is no {file.name}: another run made the image"
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
    """Why the machine's report is rejected; None if it is of this plan and has all its resources.

    A rejection is marked beside the report, so that later runs know it even if this run is killed.
    """
    _, why = read_report(file, plan)
    if why is not None:
        # The file is empty if no report arrived: its existence is the mark.
        write_file(rejected_report(file), file.read_bytes() if file.is_file() else b"")
    return why


def forget_reports(file: Path) -> None:
    """Remove the report and the mark of an earlier build, before a new build begins."""
    for old in (file, rejected_report(file)):
        old.unlink(missing_ok=True)


def rejected_report(file: Path) -> Path:
    """The file that marks a rejected report."""
    return file.with_suffix(".rejected.json")


def _differences(report: GuestReport, plan: BuildPlan) -> list[str]:
    phases = plan.image.phases
    compared = (
        ("plan_sha256", report.plan_sha256, hashlib.sha256(guest_plan(plan)).hexdigest()),
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
    return differences
