"""The result of `start.ps1 -Check` on a node (docs/guest.md, "Drift on a node"), compared with a manifest. Pure."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import pydantic

from imagegen.base.errors import Problem
from imagegen.base.lines import counted
from imagegen.record.manifest import Json
from imagegen.record.manifest_file import ManifestFile, read_guest_report
from imagegen.record.reading import InvalidDocument, parse_json, parse_model, shown
from imagegen.steps.resource import Strict

LIMIT_BYTES: Final = 32 * 2**20
_MARK: Final = "imagegen-check: "
_RUN: Final = "save the output of `start.ps1 -Phase all … -Check`: docs/operator-guide.md, section Drift of a node"
_SAME_TREE: Final = "run -Check with bundle and start.ps1 of the tree that the image was built from"
_MOST_RESOURCES: Final = 100_000
# Nodes get updates with a new image. An update in place makes another Windows than the one that was tested.
_WINDOWS: Final = (
    ("build", _SAME_TREE),
    (
        "ubr",
        "give the result of a node of this image; if Windows was updated on the node, make it from the image again",
    ),
)
# Plans name a resource of a step with rounds so.
_ROUND: Final = re.compile(r"(?s)(.*) \(round ([0-9]{1,6})\)")
Count = Annotated[int, pydantic.Field(ge=0, le=_MOST_RESOURCES)]


class CheckedResource(Strict):
    """One tested resource."""

    id: str
    status: Literal["ok", "drifted", "skipped", "failed"]
    reasons: list[str]


class Counts(Strict):
    """How many resources have which status."""

    ok: Count
    drifted: Count
    skipped: Count
    failed: Count

    @property
    def words(self) -> str:
        """The counts that are not zero."""
        return ", ".join(f"{number} {status}" for status, number in self if number) or "no resource"


class NodeCheck(Strict):
    """The whole result."""

    check_version: Literal[1]
    plan_sha256: str
    name: str
    target: str
    phase: str
    node: str
    booted: bool
    machine: Json
    count: Counts
    resources: Annotated[list[CheckedResource], pydantic.Field(max_length=_MOST_RESOURCES)]


def read_node_check(data: bytes, shown_as: str) -> NodeCheck:
    """The result in the output of start.ps1, or in a file with this line or its JSON only."""
    text = _decode(data)
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(_MARK)]
    if len(lines) > 1:
        message = f'has {len(lines)} lines that begin with "{_MARK.strip()}"'
        raise InvalidDocument([Problem(shown_as, 0, "", message, "give the output of one -Check")])
    if not lines and not text.lstrip().startswith("{"):
        message = f'has no line that begins with "{_MARK.strip()}": start.ps1 ended before it tested anything'
        raise InvalidDocument([Problem(shown_as, 0, "", message, _RUN)])
    value = parse_json((lines[0].removeprefix(_MARK) if lines else text).encode(), shown_as, _RUN)
    return parse_model(value, NodeCheck, shown_as, _RUN)


def compare_node(check: NodeCheck, file: ManifestFile, shown_as: str) -> Iterator[Problem]:
    """Why the node is not as its image was: another image, an incomplete result, and each resource that drifted."""
    manifest, report = file.manifest, read_guest_report(file)
    if report is None:
        message = f"the manifest has no report of the machine to compare with: {manifest.report_missing}"
        yield Problem(shown_as, 0, "", message, "use the manifest of the run that built the image")
        return
    identity = (
        ("plan_sha256", check.plan_sha256, report.plan_sha256, _SAME_TREE),
        ("name", check.name, manifest.name, _SAME_TREE),
        ("target", check.target, manifest.provider, _SAME_TREE),
        ("phase", check.phase, "all", _RUN),
    )
    wrong = [
        Problem(shown_as, 0, key, f"is {shown(found)}, but the manifest's image needs {shown(expected)}", hint)
        for key, found, expected, hint in identity
        if found != expected
    ]
    if not check.booted:
        wrong.append(Problem(shown_as, 0, "booted", "is false: this is no node that booted from an image", _RUN))
    wrong += [
        Problem(shown_as, 0, f"machine.{key}", f"is {shown(now)}, but the image was built with {shown(then)}", hint)
        for key, hint in _WINDOWS
        if (now := check.machine.get(key)) != (then := report.machine.get(key))
    ]
    # The resources of another plan are no news.
    yield from wrong or _compare_resources(check, _tested([one.id for one in report.resources]), shown_as)
    if not wrong:
        yield from _check_skipped(check, manifest.inputs.first_boot, shown_as)


def _check_skipped(check: NodeCheck, allowed: list[str] | None, shown_as: str) -> Iterator[Problem]:
    """Resources that nobody may skip, and a result in which nothing was tested."""
    skipped = [one.id for one in check.resources if one.status == "skipped"]
    if skipped and len(skipped) == len(check.resources):
        yield Problem(shown_as, 0, "resources", "all are skipped: nothing was tested", _RUN)
    elif allowed is not None:
        for name in [one for one in skipped if one not in allowed]:
            yield Problem(shown_as, 0, shown(name), "is skipped, but a node may not change this resource", _SAME_TREE)


def _compare_resources(check: NodeCheck, expected: list[str], shown_as: str) -> Iterator[Problem]:
    """What was left out of the result, or changed in it, and what drifted."""
    found = [one.id for one in check.resources]
    if found != expected:
        odd = sorted(set(found) ^ set(expected)) or ["their order"]
        listed = counted(len(found), "resource")
        message = f"{listed}, but the manifest's report has {len(expected)}; they differ in {shown(', '.join(odd[:3]))}"
        yield Problem(shown_as, 0, "resources", message, _SAME_TREE)
    for status, number in check.count:
        actual = sum(one.status == status for one in check.resources)
        if number != actual:
            message = f"is {number}, but the list has {counted(actual, 'resource')} with this status"
            yield Problem(shown_as, 0, f"count.{status}", message, _RUN)
    for one in check.resources:
        if one.status in ("drifted", "failed"):
            what = "has drifted" if one.status == "drifted" else "could not be read"
            reasons = shown("; ".join(one.reasons))
            hint = "make the node from the image again, or find out who changed it"
            yield Problem(shown_as, 0, shown(one.id), f"{what}: {reasons}", hint)


def _tested(ids: list[str]) -> list[str]:
    """The resources that -Check tests: of one that is repeated in several rounds, the last."""
    known = set(ids)
    rounds = [_ROUND.fullmatch(name) for name in ids]
    return [
        name
        for name, found in zip(ids, rounds, strict=True)
        if found is None or f"{found[1]} (round {int(found[2]) + 1})" not in known
    ]


def _decode(data: bytes) -> str:
    """The text. Windows PowerShell 5.1 writes a redirected output in UTF-16, and other text in Windows' own encoding;
    the line with the result is ASCII."""
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    return data.decode(encoding, errors="replace")
