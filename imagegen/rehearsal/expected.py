"""What Packer must send for a tree, read from the tree: files, and the command lines that run them."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import urllib.parse
import zipfile
from types import MappingProxyType
from typing import TYPE_CHECKING

import pydantic

from imagegen.base.errors import VerificationError
from imagegen.fetch.request import place_of
from imagegen.rehearsal.network.private_files import Demand
from imagegen.steps.image_name import DOCKER_HUB

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BUNDLE_PATH = r"C:\Windows\Temp\imagegen-bundle.zip"
ENTRY_PATH = "C:/Windows/Temp/imagegen-start.ps1"
GENERALISE_PATH = "C:/Windows/Temp/imagegen-generalise.ps1"
LOGS_PATH = "C:/Windows/Temp/imagegen-logs.ps1"
CREDENTIALS_PATH = "C:/Windows/Temp/imagegen-credentials.ps1"
REPORT_PATH = r"C:\ProgramData\imagegen\report.json"

_BYPASS = "-ExecutionPolicy Bypass "
_ALL_SIGNED = "AllSigned"


def _powershell(policy: str, path: str) -> str:
    return f"powershell.exe -NoProfile -NonInteractive {policy}-File {path}"


@dataclasses.dataclass(frozen=True)
class ExpectedDownload:
    """The address of a private artifact."""

    url: str
    """As the plan has it."""
    demand: Demand

    def fault(self, url: str, authorization: str) -> str:
        """What is wrong with an address that the machine received. It shows no secret."""
        base, _, query = url.partition("?")
        if urllib.parse.unquote(base) != urllib.parse.unquote(self.url):
            return "leads to another file"
        if authorization != self.demand.authorization:
            return "has not the header that its host demands"
        is_right = bool(query) if self.demand.cloud else query == self.demand.query
        return "" if is_right else "has not the query that it needs"


@dataclasses.dataclass(frozen=True)
class ExpectedPhase:
    """One run of the entry script, and whether a restart follows."""

    name: str
    arguments: tuple[str, ...]
    restart: bool
    credentials: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of the registries from which it pulls images: those that must come before the script, by Docker's key."""
    downloads: Mapping[str, ExpectedDownload] = dataclasses.field(default_factory=dict)
    """The private artifacts whose addresses must come before the script, by their names."""
    policy: str = _BYPASS
    """The option for PowerShell's policy. Empty if the machine runs only signed scripts."""

    @property
    def command(self) -> str:
        """The exact command line."""
        return " ".join((_powershell(self.policy, ENTRY_PATH), *self.arguments))


@dataclasses.dataclass(frozen=True)
class Expected:
    """The files and commands that Packer must send for a tree."""

    bundle: bytes
    entry: bytes
    generalise: bytes
    phases: tuple[ExpectedPhase, ...]
    logs: bytes
    begins_with_restart: bool = False
    """Whether a restart comes before the first phase, as before updates."""
    policy: str = _BYPASS

    @property
    def generalise_command(self) -> str:
        """The exact command line."""
        return _powershell(self.policy, GENERALISE_PATH)

    @property
    def logs_command(self) -> str:
        """The exact command line."""
        return _powershell(self.policy, LOGS_PATH)


class _PlannedFields(pydantic.BaseModel):
    reference: str | None = None
    docker: str | None = None
    name: str | None = None
    data: object = None
    artifact: str | None = None


class _PlannedResource(pydantic.BaseModel):
    kind: str
    fields: _PlannedFields = _PlannedFields()


class _PlannedStep(pydantic.BaseModel):
    resources: tuple[_PlannedResource, ...]


class _PlannedPhase(pydantic.BaseModel):
    name: str
    restart: bool
    steps: tuple[_PlannedStep, ...]


class _PlannedArtifact(pydantic.BaseModel):
    url: str


class _Plan(pydantic.BaseModel):
    phases: tuple[_PlannedPhase, ...]
    artifacts: dict[str, _PlannedArtifact] = {}


def expected_from_tree(
    tree: Path,
    credentials: Mapping[str, str] = MappingProxyType({}),
    demands: Mapping[str, Demand] = MappingProxyType({}),
) -> Expected:
    """Read what Packer must send. Digests and phases are taken from the bundle, never from the tree's variables.

    `credentials` are those of the registries that demand some, by their names, and `demands` those of other hosts."""
    bundle = _read(tree, "bundle.zip")
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            plan = archive.read("plan.json")
    except (zipfile.BadZipFile, KeyError) as error:
        raise VerificationError("guest/bundle.zip is not a zip file with a plan.json", details=[str(error)]) from error
    try:
        read = _Plan.model_validate_json(plan)
    except pydantic.ValidationError as error:
        raise VerificationError("plan.json in guest/bundle.zip has no valid phases", details=[str(error)]) from error
    phases = read.phases
    policy = "" if _runs_only_signed(phases) else _BYPASS
    private = {
        name: ExpectedDownload(one.url, demands[place])
        for name, one in read.artifacts.items()
        if (place := place_of(one.url, demands)) is not None
    }
    first = next((at for at, phase in enumerate(phases) if _uses(phase, private)), len(phases))
    digests = ("-BundleSha256", hashlib.sha256(bundle).hexdigest(), "-PlanSha256", hashlib.sha256(plan).hexdigest())
    return Expected(
        bundle=bundle,
        entry=_read(tree, "start.ps1"),
        generalise=_read(tree, "generalise.ps1"),
        logs=_read(tree, "logs.ps1"),
        phases=tuple(
            ExpectedPhase(
                *(phase.name, ("-Phase", phase.name, "-Bundle", BUNDLE_PATH, *digests), phase.restart),
                _credentials_for(phase, credentials),
                # A later phase also sets what is no longer as an earlier phase left it.
                private if at >= first else {},
                policy,
            )
            for at, phase in enumerate(phases)
        ),
        policy=policy,
        begins_with_restart=any(
            resource.kind == "update" for phase in phases for step in phase.steps for resource in step.resources
        ),
    )


def _runs_only_signed(phases: tuple[_PlannedPhase, ...]) -> bool:
    fields = [resource.fields for phase in phases for step in phase.steps for resource in step.resources]
    return any(one.name == "ExecutionPolicy" and one.data == _ALL_SIGNED for one in fields)


def _uses(phase: _PlannedPhase, private: Mapping[str, ExpectedDownload]) -> bool:
    return any(resource.fields.artifact in private for step in phase.steps for resource in step.resources)


def _credentials_for(phase: _PlannedPhase, credentials: Mapping[str, str]) -> dict[str, str]:
    """All credentials by Docker's key, if the phase pulls an image with any of them."""
    fields = [resource.fields for step in phase.steps for resource in step.resources if resource.fields.reference]
    if not any(str(one.reference).partition("/")[0] in credentials for one in fields):
        return {}
    hub = "https://index.docker.io/v1/" if any(one.docker for one in fields) else DOCKER_HUB
    return {hub if registry == DOCKER_HUB else registry: auth for registry, auth in credentials.items()}


def _read(tree: Path, name: str) -> bytes:
    try:
        return (tree / "guest" / name).read_bytes()
    except OSError as error:
        raise VerificationError(f"guest/{name} of the tree cannot be read", details=[str(error)]) from error
