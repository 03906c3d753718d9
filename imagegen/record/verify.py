"""Verifies a manifest and the documents about it, without any network: each check, and every fault that it found."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.lines import counted
from imagegen.fetch.lock import lock_sha256, read_lock
from imagegen.record import envelope, node_check, sbom
from imagegen.record.differences import differences, first_problems
from imagegen.record.document_files import DocumentFiles
from imagegen.record.envelope import Attestation, read_attestation
from imagegen.record.keys import VerifyingKey
from imagegen.record.lock_check import compare_lock
from imagegen.record.manifest_file import ManifestFile, find_contradictions, read_manifest
from imagegen.record.node_check import compare_node, read_node_check
from imagegen.record.reading import ATTEST_AGAIN, InvalidDocument, read_bytes
from imagegen.record.sbom import compare_sbom
from imagegen.record.statement import Statement, make_statement

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
        found = read_attestation(read_bytes(path, limit=envelope.LIMIT_BYTES, hint=_NO_ATTESTATION), str(path))
        if request.key and (problem := _check_signature(found, request.key, request.manifest)):
            return _failed(name, [problem]), None
        statement = found.read_statement()
        expected = make_statement(file, statement.sbom_sha256)
    except InvalidDocument as invalid:
        return _failed(name, invalid.problems), None
    compared = differences(
        statement.as_json(), expected.as_json(), place=str(path), source="the manifest", hint=ATTEST_AGAIN
    )
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
        check = read_node_check(read_bytes(path, limit=node_check.LIMIT_BYTES, hint=hint), str(path))
        return _judged("node", f"{check.node}: {check.count.words}", compare_node(check, file, str(path)))
    except InvalidDocument as invalid:
        return _failed("node", invalid.problems)


def _judged(name: str, summary: str, problems: Iterable[Problem]) -> Check:
    found = list(problems)
    return _failed(name, found) if found else Check(name, "ok", summary)


def _failed(name: str, problems: list[Problem]) -> Check:
    return Check(name, "failed", counted(len(problems), "problem"), tuple(first_problems(problems)))
