"""Judges a signature and those nested in it: bytes in, `Signature` out. Pure. `model` has the order of the verdicts."""

import datetime
from collections.abc import Iterator
from typing import Final

from imagegen.authenticode.algorithms import WEAK_DIGESTS, digest_label
from imagegen.authenticode.chains import Chain, ChainRequest, find_chain
from imagegen.authenticode.cms import SignedData, read_signed_data
from imagegen.authenticode.contents import OPUS_INFO, read_program
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import SEVERITY, Certificate, Signature, Timestamp, Trust, Verdict
from imagegen.authenticode.subject import Subject
from imagegen.authenticode.timestamps import find_timestamp
from imagegen.authenticode.usages import CODE_SIGNING, LIFETIME_SIGNING

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
    name, url = read_program(data.signer.signed.get(OPUS_INFO, ()))
    return Signature(
        verdict=verdict,
        reason=reason,
        file_digest=file_digest,
        digest=data.signer.digest,
        is_nested=is_nested,
        signer=signer,
        chain=chain_found.certificates,
        timestamp=timestamp,
        is_revocation_checked=chain_found.is_revocation_checked,
        program_name=name,
        program_url=url,
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
