"""Judges the timestamps of a signature: RFC 3161 tokens and PKCS #9 countersignatures. Pure."""

import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from imagegen.authenticode import asn1
from imagegen.authenticode.algorithms import BROKEN_DIGESTS, digest_label, digest_of
from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.chains import ChainRequest, find_chain
from imagegen.authenticode.cms import SignerInfo, are_same, read_algorithm, read_signed_data, read_signer_info
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import Certificate, Timestamp, TimestampKind, Trust, Verdict
from imagegen.authenticode.usages import TIME_STAMPING

_TOKEN: Final = "1.3.6.1.4.1.311.3.3.1"  # noqa: S105 - an object identifier
_COUNTERSIGNATURE: Final = "1.2.840.113549.1.9.6"
_TIMESTAMP_INFO: Final = "1.2.840.113549.1.9.16.1.4"
_SIGNING_TIME: Final = "1.2.840.113549.1.9.5"
_SIGNING_CERTIFICATE: Final = {"1.2.840.113549.1.9.16.2.12": "sha1", "1.2.840.113549.1.9.16.2.47": ""}
_MOST_TIMESTAMPS: Final = 8
_KEY_USAGES: Final = frozenset({"digital_signature", "non_repudiation"})
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
        time = _time(info["gen_time"].native)
    if not are_same(stamped, digest_of(digest, [signer.signature])):
        raise MalformedData("it is the timestamp of another signature")
    data.signer.check_content(data.content_type, data.content)
    digests = {digest, data.signer.digest}
    return _judge(TimestampKind.RFC3161, data.signer, (*data.certificates, *others), time, digests, trust)


def _judge_countersignature(value: bytes, signer: SignerInfo, others: Sequence[Certificate], trust: Trust) -> Timestamp:
    """PKCS #9, 5.6: a signature over the signature, with the time among its attributes."""
    authority = read_signer_info(value)
    # A countersignature should have no type of content (RFC 2985, 5.3.6), and those that have one do not agree on it.
    authority.check_content(None, signer.signature)
    times = authority.signed.get(_SIGNING_TIME, ())
    if not times:
        raise MalformedData("it has no time")
    with decoding("the timestamp"):
        time = _time(load(asn1.Time, times[0]).native)
    return _judge(TimestampKind.COUNTERSIGNATURE, authority, others, time, {authority.digest}, trust)


def _judge(
    kind: TimestampKind,
    signer: SignerInfo,
    certificates: Sequence[Certificate],
    time: datetime.datetime,
    digests: set[str],
    trust: Trust,
) -> Timestamp:
    authority = signer.find(certificates)
    fault = _fault(signer, authority, time, digests, trust)
    if fault or authority is None:
        return Timestamp(kind, Verdict.BAD_TIMESTAMP, fault, time, signer.digest, authority)
    request = ChainRequest(TIME_STAMPING, at=time, timestamp=time, key_usages=_KEY_USAGES)
    chain = find_chain(authority, certificates, trust, request)
    verdict = Verdict.VALID if chain.verdict is Verdict.VALID else Verdict.BAD_TIMESTAMP
    return Timestamp(kind, verdict, chain.reason, time, signer.digest, authority, chain.certificates)


def _fault(
    signer: SignerInfo, authority: Certificate | None, time: datetime.datetime, digests: set[str], trust: Trust
) -> str:
    if authority is None:
        return "the certificate of its authority is missing"
    if not signer.is_signed_by(authority):
        return f'it is not signed by "{authority.subject.short}"'
    if not _names(signer, authority):
        return f'it names another authority than "{authority.subject.short}"'
    if time > trust.now + _AHEAD:
        return f"its time, {time:%Y-%m-%d %H:%M}, is in the future"
    if digests & BROKEN_DIGESTS:
        return f"its digest is {' and '.join(map(digest_label, sorted(digests)))}"
    return ""


def _names(signer: SignerInfo, authority: Certificate) -> bool:
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


def _time(value: object) -> datetime.datetime:
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise MalformedData("its time cannot be read")
    return value.astimezone(datetime.UTC)
