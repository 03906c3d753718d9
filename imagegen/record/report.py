"""The report of an image's machine (docs/guest.md), as a closed model: it comes from the machine. Pure."""

from typing import Any, Literal

from imagegen.record.manifest import Json
from imagegen.steps.resource import Sha256, Strict


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


class LeftOut(Strict):
    """The files of an archive that the plan does not list: how many, and the names of the first."""

    count: int
    names: list[str]

    @property
    def text(self) -> str:
        """The names, and how many more there are."""
        more = self.count - len(self.names)
        return f"{', '.join(self.names)}{f' and {more} more' if more > 0 else ''}"


class GuestReport(Strict):
    """The whole report (docs/guest.md)."""

    report_version: Literal[1]
    plan_sha256: str
    name: str
    target: str
    machine: Json
    phases: list[ReportedPhase]
    resources: list[ReportedResource]
    signatures: dict[Sha256, Literal["machine", "host"]] = {}
    """Who checked the signature of each signed file. The report of an older imagegen has none."""
    left_out: dict[str, LeftOut] = {}
    """What the machine did not put on its disk, by the id of the resource. As for `signatures`."""


def left_out_lines(report: Json | None) -> list[str]:
    """What the machine did not put on its disk, one line for each archive."""
    found = GuestReport.model_validate(report).left_out if report else {}
    return [f"{name}: left out, because the plan does not list them: {one.text}" for name, one in found.items()]


def reported_sizes(report: Json) -> dict[str, int]:
    """The size of each file of an artifact on the disk, by its sha256. An older imagegen reported only some."""
    found: dict[str, int] = {}
    for resource in GuestReport.model_validate(report).resources:
        facts: dict[str, Any] = resource.facts or {}
        members = facts.get("members") if resource.kind == "archive" else {"": facts}
        for file in (members or {}).values():
            if isinstance(file, dict) and isinstance(file.get("size"), int):
                found[str(file.get("sha256"))] = file["size"]
    return found
