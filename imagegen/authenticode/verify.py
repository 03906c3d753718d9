"""Verifies the Authenticode signature of one file, with its timestamps and those nested in it.

Reads only that file, and never the network. Bytes never raise an exception here: they get a verdict, in the order that
`model` has. Only reading itself can fail, with an OSError.
"""

import contextlib
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import IO, Final

from imagegen.authenticode import asn1
from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.certificates import BROKEN_DIGESTS, WEAK_DIGESTS, digest_label, digest_of
from imagegen.authenticode.chains import Chain, ChainRequest, find_chain
from imagegen.authenticode.cms import (
    SignedData,
    SignerInfo,
    are_same,
    read_algorithm,
    read_signed_data,
    read_signer_info,
)
from imagegen.authenticode.files import COMMENTS, CatalogueFile, PortableExecutable, Script, Subject, read_members
from imagegen.authenticode.model import (
    CODE_SIGNING,
    LIFETIME_SIGNING,
    SEVERITY,
    TIME_STAMPING,
    Catalogue,
    Certificate,
    MalformedData,
    Signature,
    Timestamp,
    TimestampKind,
    Trust,
    Verdict,
    Verification,
)
from imagegen.authenticode.msi import MAGIC, InstallerPackage

_TOKEN: Final = "1.3.6.1.4.1.311.3.3.1"  # noqa: S105 - an object identifier
_COUNTERSIGNATURE: Final = "1.2.840.113549.1.9.6"
_TIMESTAMP_INFO: Final = "1.2.840.113549.1.9.16.1.4"
_SIGNING_TIME: Final = "1.2.840.113549.1.9.5"
_SIGNING_CERTIFICATE: Final = {"1.2.840.113549.1.9.16.2.12": "sha1", "1.2.840.113549.1.9.16.2.47": ""}
_MOST_TIMESTAMPS: Final = 8
_TIMESTAMP_USAGES: Final = frozenset({"digital_signature", "non_repudiation"})
# Clocks differ.
_AHEAD: Final = datetime.timedelta(hours=1)


def find_timestamp(signer: SignerInfo, others: Sequence[Certificate], trust: Trust) -> Timestamp | None:
    """The first valid timestamp; if none is valid, the first one; None if there is none."""
    first = None
    for timestamp in _timestamps(signer, others, trust):
        if timestamp.verdict is Verdict.VALID:
            return timestamp
        first = first or timestamp
    return first


def _timestamps(signer: SignerInfo, others: Sequence[Certificate], trust: Trust) -> Iterator[Timestamp]:
    tokens = [(TimestampKind.RFC3161, value) for value in signer.unsigned.get(_TOKEN, ())]
    countersignatures = signer.unsigned.get(_COUNTERSIGNATURE, ())
    tokens += [(TimestampKind.COUNTERSIGNATURE, value) for value in countersignatures]
    for kind, value in tokens[:_MOST_TIMESTAMPS]:
        judge = _judge_token if kind is TimestampKind.RFC3161 else _judge_countersignature
        try:
            yield judge(value, signer, others, trust)
        except MalformedData as error:
            yield Timestamp(kind, Verdict.BAD_TIMESTAMP, str(error), None, "", None)


def _judge_token(token: bytes, signer: SignerInfo, others: Sequence[Certificate], trust: Trust) -> Timestamp:
    """RFC 3161, 2.4.2: a signed statement that the digest of the signature was seen at a time."""
    data = read_signed_data(token)
    if data.content_type != _TIMESTAMP_INFO:
        raise MalformedData("it is not a timestamp token")
    with decoding("the timestamp"):
        info = load(asn1.TimestampInfo, data.content)
        imprint = info["message_imprint"]
        digest = read_algorithm(imprint["hash_algorithm"])
        stamped = bytes(imprint["hashed_message"].native)
        time = _read_time(info["gen_time"].native)
    if not are_same(stamped, digest_of(digest, [signer.signature])):
        raise MalformedData("it is the timestamp of another signature")
    data.signer.check_content(data.content_type, data.content)
    digests = {digest, data.signer.digest}
    return _judge_timestamp(TimestampKind.RFC3161, data.signer, (*data.certificates, *others), time, digests, trust)


def _judge_countersignature(value: bytes, signer: SignerInfo, others: Sequence[Certificate], trust: Trust) -> Timestamp:
    """PKCS #9, 5.6: a signature over the signature, with the time among its attributes."""
    authority = read_signer_info(value)
    # A countersignature should have no type of content (RFC 2985, 5.3.6), and those that have one do not agree on it.
    authority.check_content(None, signer.signature)
    times = authority.signed.get(_SIGNING_TIME, ())
    if not times:
        raise MalformedData("it has no time")
    with decoding("the timestamp"):
        time = _read_time(load(asn1.Time, times[0]).native)
    return _judge_timestamp(TimestampKind.COUNTERSIGNATURE, authority, others, time, {authority.digest}, trust)


def _judge_timestamp(
    kind: TimestampKind,
    signer: SignerInfo,
    certificates: Sequence[Certificate],
    time: datetime.datetime,
    digests: set[str],
    trust: Trust,
) -> Timestamp:
    authority = signer.find(certificates)
    fault = _timestamp_fault(signer, authority, time, digests, trust)
    if fault or authority is None:
        return Timestamp(kind, Verdict.BAD_TIMESTAMP, fault, time, signer.digest, authority)
    request = ChainRequest(TIME_STAMPING, at=time, timestamp=time, key_usages=_TIMESTAMP_USAGES)
    chain = find_chain(authority, certificates, trust, request)
    verdict = Verdict.VALID if chain.verdict is Verdict.VALID else Verdict.BAD_TIMESTAMP
    return Timestamp(kind, verdict, chain.reason, time, signer.digest, authority, chain.certificates)


def _timestamp_fault(
    signer: SignerInfo, authority: Certificate | None, time: datetime.datetime, digests: set[str], trust: Trust
) -> str:
    if authority is None:
        return "the certificate of its authority is missing"
    if not signer.is_signed_by(authority):
        return f'it is not signed by "{authority.subject.short}"'
    if not _names_authority(signer, authority):
        return f'it names another authority than "{authority.subject.short}"'
    if time > trust.now + _AHEAD:
        return f"its time, {time:%Y-%m-%d %H:%M}, is in the future"
    if digests & BROKEN_DIGESTS:
        return f"its digest is {' and '.join(map(digest_label, sorted(digests)))}"
    return ""


def _names_authority(signer: SignerInfo, authority: Certificate) -> bool:
    """RFC 5816: whether the signed attributes, if they name a certificate, name this one."""
    for oid, fixed in _SIGNING_CERTIFICATE.items():
        for value in signer.signed.get(oid, ()):
            with decoding("the timestamp"):
                named = load(asn1.SigningCertificate, value)["certificates"][0]
                # The first version has no algorithm: it is always SHA-1.
                digest = fixed or read_algorithm(named["algorithm"])
                if not are_same(bytes(named["digest"].native), digest_of(digest, [authority.der])):
                    return False
    return True


def _read_time(value: object) -> datetime.datetime:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise MalformedData("its time cannot be read")
    return value.astimezone(datetime.UTC)


_NESTED: Final = "1.3.6.1.4.1.311.2.4.1"
_DEEPEST: Final = 4
_MOST_SIGNATURES: Final = 16
_KEY_USAGES: Final = frozenset({"digital_signature"})


def judge_signatures(encoded: bytes, subject: Subject, trust: Trust) -> tuple[Signature, ...]:
    """The verdicts on a file's signature and on those nested in it, the outermost first."""
    found = []
    for signature in _judge_all(encoded, subject, trust, 0):
        found.append(signature)
        if len(found) == _MOST_SIGNATURES:
            break
    return tuple(found)


def damaged(reason: str, *, is_nested: bool = False) -> Signature:
    """A signature that cannot be read."""
    return Signature(Verdict.ALTERED, reason, "", "", is_nested, None, (), None)


def _judge_all(encoded: bytes, subject: Subject, trust: Trust, depth: int) -> Iterator[Signature]:
    try:
        data = read_signed_data(encoded)
        yield _judge(data, subject, trust, is_nested=depth > 0)
    except MalformedData as error:
        yield damaged(f"the signature is damaged: {error}", is_nested=depth > 0)
        return
    if depth < _DEEPEST:
        for nested in data.signer.unsigned.get(_NESTED, ()):
            yield from _judge_all(nested, subject, trust, depth + 1)


def _judge(data: SignedData, subject: Subject, trust: Trust, *, is_nested: bool) -> Signature:
    file_digest, fault = subject.check(data.content_type, data.content)
    file_digest = file_digest or data.signer.digest
    signer = data.signer.find(data.certificates)
    if not fault:
        data.signer.check_content(data.content_type, data.content)
    if not fault and signer and not data.signer.is_signed_by(signer):
        fault = f'the signature was changed: it is not one by "{signer.subject.short}"'
    if fault or signer is None:
        verdict = Verdict.ALTERED if fault else Verdict.UNTRUSTED
        reason = fault or "the signature does not hold the certificate of its signer"
        chain = (signer,) if signer else ()
        return Signature(verdict, reason, file_digest, data.signer.digest, is_nested, signer, chain, None)
    timestamp = find_timestamp(data.signer, data.certificates, trust)
    chain_found = _find_chain(signer, data, timestamp, trust)
    weakness = trust.strength.find_fault(signer)
    verdict, reason = _verdict(signer, chain_found, timestamp, {file_digest, data.signer.digest}, weakness)
    return Signature(
        verdict=verdict,
        reason=reason,
        file_digest=file_digest,
        digest=data.signer.digest,
        is_nested=is_nested,
        signer=signer,
        chain=chain_found.certificates,
        timestamp=timestamp,
    )


def _find_chain(signer: Certificate, data: SignedData, timestamp: Timestamp | None, trust: Trust) -> Chain:
    stamped = _valid_time(timestamp)
    at = trust.now if stamped is None or _ends_with_certificate(signer) else stamped
    request = ChainRequest(CODE_SIGNING, at=at, timestamp=stamped, key_usages=_KEY_USAGES)
    return find_chain(signer, data.certificates, trust, request)


def _valid_time(timestamp: Timestamp | None) -> datetime.datetime | None:
    return timestamp.time if timestamp and timestamp.verdict is Verdict.VALID else None


def _ends_with_certificate(signer: Certificate) -> bool:
    return LIFETIME_SIGNING in (signer.extensions.extended_usage or ())


def _verdict(
    signer: Certificate, chain: Chain, timestamp: Timestamp | None, digests: set[str], weakness: str
) -> tuple[Verdict, str]:
    """The most severe of what was found, and why."""
    weak = " and ".join(map(digest_label, sorted(digests & WEAK_DIGESTS)))
    found = {chain.verdict: chain.reason}
    if chain.verdict is Verdict.EXPIRED:
        found[Verdict.EXPIRED] = f"{chain.reason}, and {_why_now(signer, timestamp)}"
    if timestamp and timestamp.verdict is not Verdict.VALID:
        by = f' by "{timestamp.authority.subject.short}"' if timestamp.authority else ""
        found[Verdict.BAD_TIMESTAMP] = f"the timestamp{by} is not valid: {timestamp.reason}"
    if weak:
        found[Verdict.WEAK_DIGEST] = f"only {weak} protects the file"
    if weakness:
        found[Verdict.WEAK_CERTIFICATE] = weakness
    verdict = min(found, key=SEVERITY.index)
    if verdict is Verdict.VALID:
        return verdict, f'signed by "{signer.subject.short}", {_stamped(timestamp)}'
    return verdict, found[verdict]


def _why_now(signer: Certificate, timestamp: Timestamp | None) -> str:
    if timestamp and _ends_with_certificate(signer):
        return "it ends the signature in spite of the timestamp (lifetime signing)"
    if timestamp and timestamp.time:
        return f"the timestamp is from {timestamp.time:%Y-%m-%d}"
    return "the signature has no timestamp"


def _stamped(timestamp: Timestamp | None) -> str:
    if timestamp is None or timestamp.authority is None:
        return "without a timestamp"
    return f'timestamped on {timestamp.time:%Y-%m-%d} by "{timestamp.authority.subject.short}"'


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
