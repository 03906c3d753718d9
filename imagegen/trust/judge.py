"""Judges the signatures of files by a config: bytes in, records of the signatures and problems out.

Downloads, the operator's own files and the signed copies of scripts are judged here, and nowhere else. Programs in an
archive are written to a folder meanwhile, which is removed."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import hashlib
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.files import COMMENTS
from imagegen.authenticode.model import FileKind, Verdict, Verification
from imagegen.authenticode.signer import nearest
from imagegen.authenticode.trust import load_trust, read_public_roots
from imagegen.authenticode.verify import read_catalogue, verify
from imagegen.base.errors import RefusedError
from imagegen.fetch.lock import WHOLE_FILE, LockedIssuer, LockedSignature
from imagegen.settle.spec import ROOT
from imagegen.trust.messages import add_to_roots, advise
from imagegen.trust.policy import general_signers
from imagegen.trust.record import (
    CheckedSignatures,
    SignatureError,
    SignatureProblem,
    judge_records,
    may_sign,
    place,
    planned_signature,
    reject_wrong_signers,
    wrong_signer,
)
from imagegen.trust.sources import ROOTS_KEY, CrlUse, trust_sources

if TYPE_CHECKING:
    from imagegen.authenticode.model import Catalogue, Certificate, Signature, Trust
    from imagegen.authenticode.signer import SignerRule
    from imagegen.fetch.lock import LockedArtifact
    from imagegen.inspect.archive import OpenedArtifact
    from imagegen.plan.model import PlannedSignature
    from imagegen.settle.spec import Spec
    from imagegen.trust.policy import OwnFiles, SignatureRequest

    ScriptJudge = Callable[[str, bytes], "JudgedScript"]

# What Windows runs by the name alone, and what holds a signature. The bytes tell every other program.
_PROGRAMS: Final = frozenset({".exe", ".dll", ".sys", ".com", ".scr", ".cpl", ".ocx", ".drv", ".efi", ".msi", ".msp"})
_CATALOGUE: Final = ".cat"
_EXTENSIONS: Final = frozenset({*_PROGRAMS, *COMMENTS, _CATALOGUE})
_STARTS: Final = (b"MZ", bytes.fromhex("d0cf11e0a1b11ae1"))
_LONGEST_NAME: Final = 1024


@dataclasses.dataclass(frozen=True)
class SignaturePolicy:
    """What must be signed in the artifacts of a config, by their names, and what is trusted."""

    requests: Mapping[str, SignatureRequest]
    roots: frozenset[str] | None
    """The sha256 of the only trusted roots. None: those of Microsoft's programme."""
    load_trust: Callable[[], Trust]
    """Reads the roots, and downloads CRLs."""
    crls: CrlUse = dataclasses.field(default_factory=CrlUse)

    def knows(self, name: str, entry: LockedArtifact) -> bool:
        """Whether what the lock says of an artifact is enough to judge it. Then `reject_locked` does."""
        request = self.requests.get(name)
        return request is None or (judge_records(request, entry) is not None and self._has_trusted_roots(entry))

    def reject_locked(self, entries: Mapping[str, LockedArtifact]) -> None:
        """Reject entries whose signers may not sign."""
        reject_wrong_signers(self.requests, entries)

    def _has_trusted_roots(self, entry: LockedArtifact) -> bool:
        found = {signature.root.thumbprint for signature in (entry.signed or {}).values()}
        return self.roots is None or found <= self.roots


@dataclasses.dataclass(frozen=True)
class _Program:
    """A program outside its archive, or a catalogue. `names` are those that it has on the machine."""

    member: str
    names: frozenset[str]
    file: Path


def check_signatures(
    request: SignatureRequest, artifact: OpenedArtifact, trust: Trust, scratch: Path, crls: CrlUse
) -> CheckedSignatures:
    """Check what the image gets of an artifact. What is unpacked for that is in `scratch` meanwhile."""
    used = request.used.select(artifact.members)
    with contextlib.ExitStack() as held:
        if artifact.format is None:
            names = used.get(WHOLE_FILE, frozenset())
            others = [WHOLE_FILE] if used and not may_be_program(names, _start_of(artifact.file)) else []
            programs = [_Program(WHOLE_FILE, names, artifact.file)] if used and not others else []
        else:
            folder = Path(held.enter_context(tempfile.TemporaryDirectory(dir=scratch, prefix="signatures-")))
            files = ((member.path, member.chunks()) for member in artifact.open())
            programs, others = _unpack(files, used, folder)
        return _check(request, programs, others, trust, crls)


def check_own_files(
    found: Iterable[OwnFiles], load_trust: Callable[[], Trust], crls: CrlUse
) -> dict[str, PlannedSignature]:
    """The signatures of the operator's programs and scripts by their sha256. One error has all that is wrong."""
    programs = [
        one
        for one in found
        if any(may_be_program(names, one.data[path]) for path, names in one.request.used.select(None).items())
    ]
    if not programs:
        return {}
    trust = load_trust()
    checked = [(one, _check_own(one, trust, crls)) for one in programs]
    # Targets share most of them.
    if problems := dict.fromkeys(problem for _, result in checked for problem in result.problems):
        raise SignatureError(problems)
    return {
        hashlib.sha256(one.data[path]).hexdigest(): planned_signature(signature)
        for one, result in checked
        for path, signature in result.signed.items()
    }


def _check_own(own: OwnFiles, trust: Trust, crls: CrlUse) -> CheckedSignatures:
    """Check files that are no download in the same way as those of one archive."""
    with tempfile.TemporaryDirectory(prefix="signatures-") as folder:
        chunks = ((path, iter((data,))) for path, data in own.data.items())
        programs, others = _unpack(chunks, own.request.used.select(None), Path(folder))
        return _check(own.request, programs, others, trust, crls)


def _check(
    request: SignatureRequest, programs: Sequence[_Program], others: list[str], trust: Trust, crls: CrlUse
) -> CheckedSignatures:
    catalogues = [
        read_catalogue(one.file, one.member, trust) for one in programs if _is_catalogue(one.member, one.names)
    ]
    found = {one.member: _verify(request, one, trust, catalogues) for one in programs if one.names}
    crls.reject_forged(chain for one in found.values() for chain in _chains(one))
    others = [*others, *(member for member, one in found.items() if _needs_none(one))]
    judged = {member: _judge(request, member, one, trust) for member, one in found.items() if not _needs_none(one)}
    return CheckedSignatures(
        {member: one for member, one in judged.items() if isinstance(one, LockedSignature)},
        sorted(others),
        tuple(one for one in judged.values() if isinstance(one, SignatureProblem)),
    )


def _chains(found: Verification) -> Iterator[Sequence[Certificate]]:
    for signature in found.signatures:
        yield signature.chain
        if signature.timestamp:
            yield signature.timestamp.chain


def _unpack(
    files: Iterable[tuple[str, Iterator[bytes]]], used: Mapping[str, frozenset[str]], folder: Path
) -> tuple[list[_Program], list[str]]:
    """The programs that the image gets, and every catalogue, as files in the folder; and the other files."""
    programs: list[_Program] = []
    others: list[str] = []
    for path, chunks in files:
        names = used.get(path, frozenset())
        if not names and not _is_catalogue(path, names):
            continue
        copy = folder / str(len(programs))
        if _copy_program(chunks, names | {path}, copy):
            programs.append(_Program(path, names, copy))
        else:
            others.append(path)
    return programs, others


def _copy_program(chunks: Iterator[bytes], names: frozenset[str], copy: Path) -> bool:
    """Write a file out of an archive, if it may be a program or a catalogue."""
    first = next(chunks, b"")
    if not may_be_program(names, first):
        return False
    try:
        with copy.open("wb") as opened:
            opened.write(first)
            for chunk in chunks:
                opened.write(chunk)
    except OSError as error:
        raise RefusedError(
            f"{copy} cannot be written: {error.strerror or error}",
            hint=f"check free space and permissions of {copy.parent}",
        ) from error
    return True


def _start_of(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(max(map(len, _STARTS)))


def _extension(name: str) -> str:
    return PurePosixPath(name.rstrip(" .")).suffix.lower()


def may_be_program(names: Iterable[str], start: bytes) -> bool:
    """Whether a file may be a program, by its bytes or by one of its names."""
    return start.startswith(_STARTS) or any(_extension(name) in _EXTENSIONS for name in names)


def _is_catalogue(member: str, names: frozenset[str]) -> bool:
    return any(_extension(name) == _CATALOGUE for name in (member, *names))


def _is_allowed(request: SignatureRequest, signature: Signature | None) -> bool:
    signer = signature.signer if signature else None
    return bool(signature and signer and may_sign(request.signers, signer, signature.chain))


def _verify(
    request: SignatureRequest, program: _Program, trust: Trust, catalogues: Sequence[Catalogue]
) -> Verification:
    """The verdict under the name that makes it a script, if one of its names does."""
    name = min(program.names, key=lambda name: (_extension(name) not in COMMENTS, name))
    # A catalogue of somebody else must not hide one of those who may sign. It is better than none, for the message.
    allowed = [one for one in catalogues if _is_allowed(request, one.verification.signature)]
    found = verify(program.file, name, trust, allowed)
    return verify(program.file, name, trust, catalogues) if found.verdict is Verdict.UNSIGNED else found


def _needs_none(verification: Verification) -> bool:
    """Whether it only began like a program: bytes that are no form of program, under a name that Windows runs not."""
    return verification.kind is FileKind.OTHER and _extension(verification.name) not in _PROGRAMS


def _judge(
    request: SignatureRequest, member: str, verification: Verification, trust: Trust
) -> LockedSignature | SignatureProblem:
    where, signature, verdict = place(request.artifact, member), verification.signature, verification.verdict
    if verdict not in (Verdict.VALID, Verdict.UNSIGNED):
        add_root = add_to_roots(trust, ROOTS_KEY)
        hint = advise(verification, trust, add_root=add_root, other=f"set {request.override} to another file")
        return SignatureProblem(f"{where} is rejected by {request.key}: {verdict}: {verification.reason}", hint)
    signer = signature.signer if signature else None
    if signature is None or signer is None:
        message = f"{where} is not signed, but {request.key} requires {request.allowed}"
        return SignatureProblem(message, _unsigned_hint(request))
    if not _is_allowed(request, signature):
        return wrong_signer(request, member, signer, signature.chain)
    if unreadable := _find_unreadable(signature):
        message = (
            f"{where} is rejected by {request.key}: a lock cannot have the name in certificate {unreadable.sha256}"
        )
        return SignatureProblem(message, f"set {request.override} to a file with another signature")
    return _record(verification, signature, signer)


def _unsigned_hint(request: SignatureRequest) -> str:
    if request.published and not request.published.signed:
        return f"no signature is published with {request.published.what}: set {request.override} to a signed copy"
    return f"sign it, or set {request.override} to a signed copy"


def _find_unreadable(signature: Signature) -> Certificate | None:
    """A certificate whose name no record can have."""
    named = (*signature.chain, *([signature.timestamp_root] if signature.timestamp_root else []))
    subjects = ((one, str(one.subject)) for one in named)
    return next((one for one, text in subjects if len(text) > _LONGEST_NAME or not text.isprintable()), None)


def _record(verification: Verification, signature: Signature, signer: Certificate) -> LockedSignature:
    timestamp = signature.timestamp
    time = timestamp.time if timestamp and timestamp.verdict is Verdict.VALID else None
    return LockedSignature(
        signer=str(signer.subject),
        thumbprint=signer.sha256.lower(),
        sha1=signer.sha1.lower(),
        by="catalogue" if verification.catalogue else "nested" if verification.needs_nested else "own",
        issuers=[_issuer(one) for one in signature.chain[1:-1]],
        root=_issuer(signature.chain[-1]),
        timestamp=time.strftime("%Y-%m-%dT%H:%M:%SZ") if time else None,
        timestamp_root=_issuer(signature.timestamp_root) if signature.timestamp_root else None,
        certificate=base64.b64encode(signer.der).decode() if verification.kind is FileKind.SCRIPT else None,
    )


def _issuer(certificate: Certificate) -> LockedIssuer:
    return LockedIssuer(subject=str(certificate.subject), thumbprint=certificate.sha256.lower())


@dataclasses.dataclass(frozen=True)
class JudgedScript:
    """What was found of the signature of a signed copy. `fault` is empty if it may be used, and follows its name."""

    fault: str
    record: LockedSignature | None = None
    end: datetime.datetime | None = None
    """When the signature ends with its certificates. None: it has a timestamp, or does not count."""


def make_script_judge(spec: Spec, now: datetime.datetime, crls: CrlUse) -> ScriptJudge:
    """The judge of a config's signed scripts. Unless the config lists the only roots, those of the machine count beside
    the public ones, because it trusts them. The CRLs in files count, and those that were downloaded for this run: a
    plan downloads nothing."""
    rules, sources = general_signers(spec.config), trust_sources(spec)
    roots = [one.thumbprint for one in spec.facts.certificates if one.store == ROOT]
    files = [file.data for key, file in spec.own_files.items() if key.startswith("facts.certificates")]
    crls.add(sources.crl_files)
    trust = load_trust(
        now=now,
        roots=files if sources.roots is None else [sources.roots],
        crls=crls.data.values(),
        public_roots=True if sources.roots is None else None,
        strength=sources.strength,
    )
    add_root = add_to_roots(trust, ROOTS_KEY) if sources.roots is not None else "add it to windows.trusted_roots"

    def judge(name: str, data: bytes) -> JudgedScript:
        found = verify(io.BytesIO(data), name, trust)
        crls.reject_forged(signature.chain for signature in found.signatures)
        if found.verdict is not Verdict.VALID:
            advice = advise(found, trust, add_root=add_root, other="sign it again")
            return JudgedScript(f"has an invalid signature: {found.verdict}: {found.reason}; {advice}")
        return _judge_script(found, rules, roots)

    return judge


def _judge_script(found: Verification, rules: Sequence[SignerRule], roots: Sequence[str]) -> JudgedScript:
    signature, signer = found.signature, found.signature.signer if found.signature else None
    if signature is None or signer is None:
        raise ValueError("a valid signature has a signer")
    if found.needs_nested:
        return JudgedScript("has a first signature with a weak digest, and PowerShell sees no other")
    if not may_sign(rules, signer, signature.chain):
        near = nearest(rules, signer, signature.chain)
        return JudgedScript(f"is signed by {signer.subject}, who is not an allowed signer: {near}")
    if fault := _root_fault(signature, roots):
        return JudgedScript(f"is signed by {signer.subject} {fault}")
    if unreadable := _find_unreadable(signature):
        return JudgedScript(f"is signed with the certificate {unreadable.sha256}, whose name no plan can have")
    record = _record(found, signature, signer)
    return JudgedScript("", record, None if record.timestamp else min(one.not_after for one in signature.chain))


def _root_fault(signature: Signature, roots: Sequence[str]) -> str:
    """A private root is on the machine only if the config puts it there. Windows fetches a public one."""
    root, (public, _) = signature.root, read_public_roots()
    if root is None or root.sha1 in roots or any(root == one.certificate for one in public):
        return ""
    return f"below {root.subject}, which the machine does not trust: add that root to windows.trusted_roots"
