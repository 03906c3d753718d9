"""Verifies a manifest and what is said about it, without any network: each check, and every fault that it found.

The attestation and the SBOM, the lock that the image was built with, and the result of `start.ps1 -Check` on a node
(docs/guest.md, "Drift on a node").
"""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.lines import counted
from imagegen.fetch.lock import Lock, lock_sha256, read_lock
from imagegen.fetch.request import shown_url
from imagegen.record import attest, sbom
from imagegen.record.attest import Attestation, DocumentFiles, Statement, VerifyingKey, make_statement, read_attestation
from imagegen.record.diff import differences, first_problems
from imagegen.record.manifest import Json
from imagegen.record.reading import ATTEST_AGAIN, InvalidDocument, parse_json, parse_model, read_bytes, shown
from imagegen.record.sbom import compare_sbom
from imagegen.record.store import ManifestFile, find_contradictions, read_guest_report, read_manifest
from imagegen.steps.resource import Strict

_HINT: Final = "give the lock as it was when the image was built, for example from that commit of its repository"


def compare_lock(lock: Lock, sha256: str, file: ManifestFile, shown_as: str) -> Iterator[Problem]:
    """Each input of the image that the lock does not have, or has with another digest. It may have further inputs."""
    inputs, target = file.manifest.inputs, file.manifest.target
    locked = {name: lock.artifacts[name] for name in inputs.artifacts if name in lock.artifacts}
    base = lock.base_images.get(target)
    found = {
        "artifacts": {name: {"url": shown_url(one.url), "sha256": one.sha256} for name, one in locked.items()},
        "base_images": {target: base.model_dump(include={"identity", "place"})} if base else {},
    }
    expected = {
        "artifacts": {name: {"url": one.url, "sha256": one.sha256} for name, one in inputs.artifacts.items()},
        "base_images": {target: inputs.base.model_dump(include={"identity", "place"})},
    }
    yield from differences(found, expected, place=shown_as, source="the manifest", hint=_HINT)
    for name, digest in inputs.images.items():
        known = _digests_of(name, lock)
        if digest not in known:
            is_ = f"is {' or '.join(sorted(known))}" if known else "is missing"
            yield Problem(shown_as, 0, f"images.{name}", f"{is_}, but the manifest says {digest}", _HINT)
    if inputs.lock_sha256 not in (None, sha256):
        message = f"has sha256 {sha256}, but the image was built with a lock of sha256 {inputs.lock_sha256}"
        yield Problem(shown_as, 0, "", message, _HINT)


def _digests_of(name: str, lock: Lock) -> set[str]:
    """Every digest by which a manifest may name a container image: it depends on how the image came."""
    digests: set[str] = set()
    if image := lock.images.get(name):
        digests |= {image.digest, image.manifest, image.config}
    for artifact in lock.artifacts.values():
        if saved := (artifact.images or {}).get(name):
            digests |= {*([saved.digest] if saved.digest else []), *(one.config for one in saved.variants)}
    return digests


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


_NO_ATTESTATION = "make it where the key is: `imagegen attest MANIFEST --key FILE`"


@dataclasses.dataclass(frozen=True)
class RefusedLabel:
    """A label that tells that a manifest is not about a real image, whoever signed the proof about it."""

    key: str
    value: str
    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class VerifyRequest:
    """What to verify."""

    manifest: Path
    documents: DocumentFiles
    key: VerifyingKey | None = None
    lock: Path | None = None
    node: Path | None = None
    needs_documents: bool = False
    """Whether it is an error that there is no attestation."""
    refused: RefusedLabel | None = None
    """A label that the manifest must not have."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One of the checks. `skipped` if there was nothing to check."""

    name: str
    status: Literal["ok", "failed", "skipped"]
    summary: str
    problems: tuple[Problem, ...] = ()


def verify(request: VerifyRequest) -> Iterator[Check]:
    """All checks. If the manifest cannot be read, there is nothing to compare the rest with."""
    try:
        file = read_manifest(request.manifest)
    except InvalidDocument as invalid:
        yield _failed("manifest", invalid.problems)
        return
    problems = [*find_contradictions(file), *_find_refused(request, file)]
    yield _judged("manifest", _manifest_words(file), problems)
    attestation, statement = _check_attestation(request, file)
    yield attestation
    yield _check_sbom(request, file, statement)
    if request.lock:
        yield _check_lock(request.lock, file)
    if request.node:
        yield _check_node(request.node, file)


def _find_refused(request: VerifyRequest, file: ManifestFile) -> Iterator[Problem]:
    refused = request.refused
    if refused and file.manifest.labels.get(refused.key) == refused.value:
        yield Problem(str(request.manifest), 0, f"labels.{refused.key}", refused.message, refused.hint)


def _manifest_words(file: ManifestFile) -> str:
    manifest = file.manifest
    # The image of a rehearsal has labels.
    labels = ", ".join(f"{key}={value}" for key, value in sorted(manifest.labels.items()))
    return (
        f"{manifest.image_id[:16]}: {counted(len(manifest.inputs.artifacts), 'artifact')}, "
        f"{counted(len(file.images), 'image')}{f'; labels {labels}' if labels else ''}"
    )


def _check_attestation(request: VerifyRequest, file: ManifestFile) -> tuple[Check, Statement | None]:
    """The check, and the statement if there is a valid one."""
    path, name = request.documents.attestation, "attestation"
    if not path.exists() and request.key is None and not request.needs_documents:
        return Check(name, "skipped", f"there is none ({path})"), None
    try:
        found = read_attestation(read_bytes(path, limit=attest.LIMIT_BYTES, hint=_NO_ATTESTATION), str(path))
        if request.key and (problem := _check_signature(found, request.key, request.manifest)):
            return _failed(name, [problem]), None
        statement = found.read_statement()
        expected = make_statement(file, statement.sbom_sha256)
    except InvalidDocument as invalid:
        return _failed(name, invalid.problems), None
    compared = differences(statement.data, expected.data, place=str(path), source="the manifest", hint=ATTEST_AGAIN)
    return _judged(name, _signature_words(found, request.key), compared), statement


def _check_signature(found: Attestation, key: VerifyingKey, manifest: Path) -> Problem | None:
    if found.envelope is None:
        message = "is not signed, but --key is given"
        return Problem(found.shown_as, 0, "", message, "sign it: `imagegen attest MANIFEST --key FILE`")
    if found.is_keyless:
        bundle, signed = shlex.quote(found.shown_as), shlex.quote(str(manifest))
        hint = (
            f"verify it with `cosign verify-blob-attestation --bundle {bundle} --type slsaprovenance1 "
            f"--certificate-identity IDENTITY --certificate-oidc-issuer URL {signed}`"
        )
        return Problem(found.shown_as, 0, "", "is signed with a certificate of Sigstore, not with a key", hint)
    if not found.is_signed_by(key):
        names = f", but names {' and '.join(found.key_ids)}" if found.key_ids else ""
        message = f"has no valid signature by the {key.kind} key {key.id}{names}"
        if key.id in found.key_ids:
            message = f"has no valid signature by the {key.kind} key {key.id}: it was changed after it was signed"
        return Problem(found.shown_as, 0, "signatures", message, "give the public key of its signer, or sign it again")
    return None


def _signature_words(found: Attestation, key: VerifyingKey | None) -> str:
    if found.envelope is None:
        return "not signed: anybody can have written it"
    return f"signed by the {key.kind} key {key.id}" if key else "signed, but without --key nobody knows by whom"


def _check_sbom(request: VerifyRequest, file: ManifestFile, statement: Statement | None) -> Check:
    path = request.documents.sbom
    stated = statement.sbom_sha256 if statement else None
    if not path.exists() and stated is None:
        return Check("sbom", "skipped", f"there is none ({path})")
    try:
        data = read_bytes(path, limit=sbom.LIMIT_BYTES, hint=ATTEST_AGAIN)
        digest = hashlib.sha256(data).hexdigest()
        if stated not in (None, digest):
            message = f"has sha256 {digest}, but the attestation says {stated}"
            return _failed("sbom", [Problem(str(path), 0, "", message, ATTEST_AGAIN)])
        count, problems = compare_sbom(data, file, str(path))
        return _judged("sbom", counted(count, "component"), problems)
    except InvalidDocument as invalid:
        return _failed("sbom", invalid.problems)


def _check_lock(path: Path, file: ManifestFile) -> Check:
    try:
        lock = read_lock(path)
    except ConfigError as error:
        hint = "give the lock as it was at the build, from your repository"
        found = [dataclasses.replace(problem, hint=hint) for problem in error.problems]
        return _failed("lock", found or [Problem(str(path), 0, "", error.message, hint)])
    if lock is None:
        raise ConfigError(f"the lock {path} does not exist", hint="give the path of the lock with --lock")
    digest = lock_sha256(path)
    known = file.manifest.inputs.lock_sha256
    summary = f"sha256 {digest}" if known else "same inputs; the manifest is older and has no digest of its lock"
    return _judged("lock", summary, compare_lock(lock, digest, file, str(path)))


def _check_node(path: Path, file: ManifestFile) -> Check:
    try:
        hint = "give the file with the output of start.ps1 -Check"
        check = read_node_check(read_bytes(path, limit=LIMIT_BYTES, hint=hint), str(path))
        return _judged("node", f"{check.node}: {check.count.words}", compare_node(check, file, str(path)))
    except InvalidDocument as invalid:
        return _failed("node", invalid.problems)


def _judged(name: str, summary: str, problems: Iterable[Problem]) -> Check:
    found = list(problems)
    return _failed(name, found) if found else Check(name, "ok", summary)


def _failed(name: str, problems: list[Problem]) -> Check:
    return Check(name, "failed", counted(len(problems), "problem"), tuple(first_problems(problems)))
