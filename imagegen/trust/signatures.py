"""Checks the signatures of the programs that an image gets of an artifact: file in, signers and problems out.

Reads the file. Programs in an archive are written to a folder, which is removed."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.files import COMMENTS
from imagegen.authenticode.model import FileKind, Verdict, Verification
from imagegen.authenticode.verify import read_catalogue, verify
from imagegen.base.errors import RefusedError
from imagegen.fetch.lock import WHOLE_FILE, LockedIssuer, LockedSignature
from imagegen.trust.signature_advice import add_to_roots, advise
from imagegen.trust.signature_request import SignatureProblem, place, wrong_signer

if TYPE_CHECKING:
    from imagegen.authenticode.model import Catalogue, Certificate, Signature, Trust
    from imagegen.inspect.archive import OpenedArtifact
    from imagegen.trust.signature_request import SignatureRequest

# What Windows runs by the name alone, and what holds a signature. The bytes tell every other program.
_PROGRAMS: Final = frozenset({".exe", ".dll", ".sys", ".com", ".scr", ".cpl", ".ocx", ".drv", ".efi", ".msi", ".msp"})
_CATALOGUE: Final = ".cat"
_EXTENSIONS: Final = frozenset({*_PROGRAMS, *COMMENTS, _CATALOGUE})
_STARTS: Final = (b"MZ", bytes.fromhex("d0cf11e0a1b11ae1"))
_LONGEST_NAME: Final = 1024
_ROOTS_KEY: Final = "artifacts.signatures.roots"


@dataclasses.dataclass(frozen=True)
class CheckedSignatures:
    """What was found in one artifact: the signatures that may be there, the files that need none, and the problems."""

    signed: dict[str, LockedSignature]
    not_programs: list[str]
    problems: tuple[SignatureProblem, ...]
    chains: tuple[Sequence[Certificate], ...] = ()
    """Those of all signatures and of their timestamps."""


@dataclasses.dataclass(frozen=True)
class _Program:
    """A program outside its archive, or a catalogue. `names` are those that it has on the machine."""

    member: str
    names: frozenset[str]
    file: Path


def check_signatures(
    request: SignatureRequest, artifact: OpenedArtifact, trust: Trust, scratch: Path
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
        return _check(request, programs, others, trust)


def check_files(
    request: SignatureRequest, files: Mapping[str, bytes], trust: Trust, scratch: Path
) -> CheckedSignatures:
    """Check files that are no download, by their paths, in the same way as those of one archive."""
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    with tempfile.TemporaryDirectory(dir=scratch, prefix="signatures-") as folder:
        chunks = ((path, iter((data,))) for path, data in files.items())
        programs, others = _unpack(chunks, request.used.select(digests), Path(folder))
        return _check(request, programs, others, trust)


def _check(
    request: SignatureRequest, programs: Sequence[_Program], others: list[str], trust: Trust
) -> CheckedSignatures:
    catalogues = [
        read_catalogue(one.file, one.member, trust) for one in programs if _is_catalogue(one.member, one.names)
    ]
    found = {one.member: _verify(request, one, trust, catalogues) for one in programs if one.names}
    others = [*others, *(member for member, one in found.items() if _needs_none(one))]
    judged = {member: _judge(request, member, one, trust) for member, one in found.items() if not _needs_none(one)}
    return CheckedSignatures(
        {member: one for member, one in judged.items() if isinstance(one, LockedSignature)},
        sorted(others),
        tuple(one for one in judged.values() if isinstance(one, SignatureProblem)),
        tuple(chain for one in found.values() for chain in _chains(one)),
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
    if signature is None or signer is None:
        return False
    return not request.signers or any(rule.matches(signer, signature.chain) for rule in request.signers)


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
        add_root = add_to_roots(trust, _ROOTS_KEY)
        hint = advise(verification, trust, add_root=add_root, other=f"set {request.override} to another file")
        return SignatureProblem(f"{where} is rejected by {request.key}: {verdict}: {verification.reason}", hint)
    signer = signature.signer if signature else None
    if signature is None or signer is None:
        message = f"{where} is not signed, but {request.key} requires {request.allowed}"
        return SignatureProblem(message, _unsigned_hint(request))
    if not _is_allowed(request, signature):
        return wrong_signer(request, member, signer, signature.chain)
    named = (*signature.chain, *([signature.timestamp_root] if signature.timestamp_root else []))
    if unreadable := next((one for one in named if not _is_readable(str(one.subject))), None):
        message = (
            f"{where} is rejected by {request.key}: a lock cannot have the name in certificate {unreadable.sha256}"
        )
        return SignatureProblem(message, f"set {request.override} to a file with another signature")
    return _locked(verification, signature, signer)


def _unsigned_hint(request: SignatureRequest) -> str:
    if request.published:
        return f"no signature is published with {request.published}: set {request.override} to a signed copy"
    return f"sign it, or set {request.override} to a signed copy"


def _is_readable(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def _locked(verification: Verification, signature: Signature, signer: Certificate) -> LockedSignature:
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
