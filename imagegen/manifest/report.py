"""The report of an image's machine (docs/guest.md), as a closed model: it comes from the machine. Pure."""

from typing import Literal

from imagegen.manifest.model import Json
from imagegen.resources.model import Sha256, Strict


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
    signatures: dict[Sha256, Literal["machine", "host"]] = {}
    """Who checked the signature of each signed file. The report of an older imagegen has none."""
