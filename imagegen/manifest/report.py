"""report.json, what the machine found on itself at the end of a build: read with distrust, compared with the plan."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Literal, Self

import pydantic

from imagegen.errors import ConfigError
from imagegen.files import read_file, write_file
from imagegen.plan.model import BuildPlan
from imagegen.resources.model import Strict

Json = dict[str, pydantic.JsonValue]

_LIMIT_BYTES = 32 * 2**20


class ReportedPhase(Strict):
    """A phase as the machine carried it out."""

    name: str
    status: Literal["finished"]
    changed: int
    restart: bool
    ms: int


class ReportedResource(Strict):
    """A resource that is as planned; one that is not fails the build, and there is no report."""

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


@dataclasses.dataclass(frozen=True)
class ExpectedReport:
    """What the report of one plan must say."""

    plan_sha256: str
    name: str
    target: str
    phases: list[str]
    resources: list[str]

    @classmethod
    def of(cls, plan: BuildPlan, plan_json: bytes) -> Self:
        """Of this plan, which the machine had as `plan_json`: every resource, in order."""
        phases = plan.image.phases
        return cls(
            plan_sha256=hashlib.sha256(plan_json).hexdigest(),
            name=plan.build.name,
            target=plan.image.provider,
            phases=[phase.name for phase in phases],
            resources=[resource.id for phase in phases for resource in phase.resources()],
        )


def read_report(file: Path, expected: ExpectedReport) -> tuple[Json | None, str | None]:
    """The report as JSON, or why there is none of this plan."""
    try:
        told = json.loads(read_file(file, limit=_LIMIT_BYTES))
        report = GuestReport.model_validate(told)
    except FileNotFoundError:
        return None, f"no report of this build is at {file.name}: the image was made by another run"
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        return None, f"the report is not one that this version reads: {place}: {first['msg']}"
    except ConfigError as error:
        return None, error.message
    except (ValueError, RecursionError) as error:
        return None, f"the report is not JSON: {error}"
    if wrong := _differences(report, expected):
        return None, f"the report is of another build: {'; '.join(wrong)}"
    return told, None


def judge_report(file: Path, expected: ExpectedReport) -> str | None:
    """Why the machine's report is rejected, or None: it is of this plan, every resource of it.

    A rejection is marked beside the report, so that it holds for later runs whatever happens to this one.
    """
    _, why = read_report(file, expected)
    if why is not None:
        # A report that never arrived leaves an empty file: it is the mark that counts.
        write_file(rejected_report(file), file.read_bytes() if file.is_file() else b"")
    return why


def forget_reports(file: Path) -> None:
    """What an earlier build left says nothing about the one that begins."""
    for old in (file, rejected_report(file)):
        old.unlink(missing_ok=True)


def rejected_report(file: Path) -> Path:
    """The mark of a rejection, beside the report."""
    return file.with_suffix(".rejected.json")


def _differences(report: GuestReport, expected: ExpectedReport) -> list[str]:
    pairs = (
        ("plan_sha256", report.plan_sha256, expected.plan_sha256),
        ("name", report.name, expected.name),
        ("target", report.target, expected.target),
        ("phases", [phase.name for phase in report.phases], expected.phases),
    )
    wrong = [f"{name} is {was}, expected {wanted}" for name, was, wanted in pairs if was != wanted]
    reported = [resource.id for resource in report.resources]
    if reported != expected.resources:
        odd = sorted(set(reported) ^ set(expected.resources)) or ["their order"]
        wrong.append(f"its resources are not the plan's: {', '.join(odd[:3])}")
    return wrong
