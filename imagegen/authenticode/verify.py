"""Verifies the Authenticode signature of one file. Reads only that file, and never the network.

Bytes never raise an exception here: they get a verdict. Only reading itself can fail, with an OSError.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import IO, Final

from imagegen.authenticode.algorithms import WEAK_DIGESTS, digest_label
from imagegen.authenticode.catalogue import CatalogueFile, read_members
from imagegen.authenticode.compound_file import MAGIC
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import SEVERITY, Catalogue, Signature, Trust, Verdict, Verification
from imagegen.authenticode.msi import InstallerPackage
from imagegen.authenticode.pe import PortableExecutable
from imagegen.authenticode.script import COMMENTS, Script
from imagegen.authenticode.signatures import damaged, judge_signatures
from imagegen.authenticode.subject import Subject

_PE_MAGIC: Final = b"MZ"
_CATALOGUE: Final = ".cat"
# With what a weak signature may be, if a nested one is valid: all of it comes with age.
_HELPED: Final = frozenset({Verdict.WEAK_DIGEST, Verdict.EXPIRED, Verdict.BAD_TIMESTAMP, Verdict.UNTRUSTED})
# From the best to the worst.
_LISTED_BY: Final = ("sha512", "sha384", "sha256", "sha1")


def verify(file: IO[bytes] | Path, name: str, trust: Trust, catalogues: Sequence[Catalogue] = ()) -> Verification:
    """The verdict on a file. `file` must be seekable; `name` is how Windows will know it: scripts are known by it.

    For a file without a signature, the best of the catalogues that list it counts.
    """
    with _opened(file) as opened:
        try:
            subject = _open_subject(opened, name)
        except MalformedData as error:
            return Verification(name, _kind(name).kind, Verdict.ALTERED, f"the file is damaged: {error}", (), None)
        return _verify(subject, name, trust, catalogues)


def read_catalogue(file: IO[bytes] | Path, name: str, trust: Trust) -> Catalogue:
    """A catalogue with the digests that it lists. One that is damaged lists none, and says so in its verdict."""
    with _opened(file) as opened:
        subject = CatalogueFile(opened)
        verification = _verify(subject, name, trust, ())
        try:
            members = read_members(subject.signature)
        except MalformedData:
            members = frozenset()
        return Catalogue(name, verification, members)


def covers(catalogue: Catalogue, file: IO[bytes] | Path, name: str) -> str:
    """The algorithm of the best digest by which the catalogue lists the file. Empty: it does not."""
    with _opened(file) as opened:
        try:
            return _listed_by(catalogue, _open_subject(opened, name))
        except MalformedData:
            return ""


@contextlib.contextmanager
def _opened(file: IO[bytes] | Path) -> Iterator[IO[bytes]]:
    if isinstance(file, Path):
        with file.open("rb") as opened:
            yield opened
    else:
        yield file


def _extension(name: str) -> str:
    # Windows ignores blanks and dots at the end of a name.
    return PureWindowsPath(name.rstrip(" .")).suffix.lower()


def _open_subject(file: IO[bytes], name: str) -> Subject:
    """The file in its form. PowerShell runs a file by its name, so a script is a script whatever it begins with."""
    extension = _extension(name)
    if extension in COMMENTS:
        return Script(file, extension)
    if extension == _CATALOGUE:
        return CatalogueFile(file)
    file.seek(0)
    beginning = file.read(len(MAGIC))
    if beginning == MAGIC:
        return InstallerPackage(file)
    if beginning.startswith(_PE_MAGIC):
        try:
            return PortableExecutable(file)
        except MalformedData:
            # A program for DOS, or no program at all: Windows finds no place for a signature in it.
            return Subject(file)
    return Subject(file)


def _kind(name: str) -> type[Subject]:
    return Script if _extension(name) in COMMENTS else InstallerPackage


def _verify(subject: Subject, name: str, trust: Trust, catalogues: Sequence[Catalogue]) -> Verification:
    try:
        subject.read_signature()
    except MalformedData as error:
        return _judged(name, subject, (damaged(str(error)),))
    if subject.signature:
        return _judged(name, subject, judge_signatures(subject.signature, subject, trust))
    return _by_catalogue(name, subject, catalogues)


def _judged(name: str, subject: Subject, signatures: tuple[Signature, ...]) -> Verification:
    """The verdict of the first signature, or of a nested one if the first is there for old Windows."""
    counting = signatures[0]
    reason = counting.reason
    if counting.verdict in _HELPED and {counting.file_digest, counting.digest} & WEAK_DIGESTS:
        others = sorted(signatures[1:], key=lambda nested: SEVERITY.index(nested.verdict))
        best = others[-1] if others else counting
        if best.verdict is Verdict.VALID:
            counting, reason = best, best.reason
        elif others:
            reason = f"{reason}; the signature that is nested in it is {best.verdict}: {best.reason}"
    return Verification(name, subject.kind, counting.verdict, reason, signatures, counting)


def _by_catalogue(name: str, subject: Subject, catalogues: Sequence[Catalogue]) -> Verification:
    found = [
        _listed(name, subject, catalogue, by) for catalogue in catalogues if (by := _listed_by(catalogue, subject))
    ]
    if not found:
        return Verification(name, subject.kind, Verdict.UNSIGNED, "the file has no signature", (), None)
    return max(found, key=lambda verification: SEVERITY.index(verification.verdict))


def _listed_by(catalogue: Catalogue, subject: Subject) -> str:
    algorithms = [algorithm for algorithm in _LISTED_BY if any(found == algorithm for found, _ in catalogue.members)]
    for algorithm in algorithms:
        if any((algorithm, digest) in catalogue.members for digest in subject.listed_digests(algorithm)):
            return algorithm
    return ""


def _listed(name: str, subject: Subject, catalogue: Catalogue, algorithm: str) -> Verification:
    own = catalogue.verification
    verdict, reason = own.verdict, f"the catalogue {catalogue.name} lists the file: {own.reason}"
    if verdict is Verdict.VALID and algorithm in WEAK_DIGESTS:
        verdict = Verdict.WEAK_DIGEST
        reason = f"the catalogue {catalogue.name} lists the file only by its {digest_label(algorithm)} digest"
    return Verification(name, subject.kind, verdict, reason, own.signatures, own.signature, catalogue.name)
