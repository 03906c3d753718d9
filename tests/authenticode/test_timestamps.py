"""Timestamps: RFC 3161 tokens and PKCS #9 countersignatures, and what is wrong with a bad one."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest
from asn1crypto import parser
from asn1crypto.core import OctetString

from imagegen.authenticode.model import TimestampKind, Verdict
from tests.authenticode.pki import (
    CODE,
    END,
    LATER,
    NOW,
    STAMPED,
    START,
    Identity,
    make_authority,
    make_ca,
    make_root,
    make_signer,
    pki,
    rsa_key,
)
from tests.authenticode.signing import (
    COUNTERSIGNATURE,
    TOKEN,
    Options,
    make_countersignature,
    make_token,
    sign_pe,
    signature_value,
)
from tests.authenticode.support import fixture, judge, trust

if TYPE_CHECKING:
    from collections.abc import Callable

V = Verdict
DAY = datetime.timedelta(days=1)
CLOCK, CLOCK_ROOT = pki().clock, pki().clock_root
KINDS = [TimestampKind.RFC3161, TimestampKind.COUNTERSIGNATURE]


def _options(kind: TimestampKind, *authorities: Identity, stamped: datetime.datetime = STAMPED) -> Options:
    if kind is TimestampKind.RFC3161:
        return Options(timestamps=authorities, stamped=stamped)
    return Options(countersigners=authorities, stamped=stamped)


def _sign(options: Options, signer: Identity | None = None) -> bytes:
    return sign_pe(fixture("program.exe"), signer or pki().signer, options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["EC", "RSA"])
def test_a_timestamp_keeps_a_signature_valid(kind: TimestampKind, key: str) -> None:
    authority = make_authority(CLOCK_ROOT, key=rsa_key() if key == "RSA" else None)
    found = judge(_sign(_options(kind, authority)), "x.exe", trust(now=LATER))
    assert (found.verdict, found.reason) == (
        V.VALID,
        'signed by "Example Inc", timestamped on 2026-03-01 by "Example Clock"',
    )
    timestamp = found.signatures[0].timestamp
    assert timestamp is not None
    assert (timestamp.kind, timestamp.time, timestamp.digest) == (kind, STAMPED, "sha256")


BAD: dict[str, tuple[Callable[[], Identity], datetime.datetime, str]] = {
    "an unknown root": (
        lambda: make_authority(make_root("O=Other, CN=Other Root")),
        STAMPED,
        'the chain ends at the root "CN=Other Root, O=Other", which is not trusted',
    ),
    "a signer of code": (
        lambda: make_authority(CLOCK_ROOT, usages=[CODE]),
        STAMPED,
        'the certificate of "Example Clock" is for code signing, not for time stamping',
    ),
    "no usage": (lambda: make_authority(CLOCK_ROOT, usages=[]), STAMPED, "but must name time stamping"),
    "below a CA for code": (
        lambda: make_authority(make_ca(CLOCK_ROOT, usages=[CODE])),
        STAMPED,
        'the CA "Example Code CA" is for code signing, not for time stamping',
    ),
    "an expired authority": (
        lambda: make_authority(CLOCK_ROOT, valid=(START, STAMPED - DAY)),
        STAMPED,
        'the certificate of "Example Clock" expired on 2026-02-28',
    ),
    "an authority of later": (
        lambda: make_authority(CLOCK_ROOT, valid=(STAMPED + DAY, END)),
        STAMPED,
        'the certificate of "Example Clock" is not valid before 2026-03-02',
    ),
    "the future": (lambda: CLOCK, NOW + DAY, "its time, 2026-06-02 00:00, is in the future"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("make", "stamped", "reason"), BAD.values(), ids=BAD)
def test_a_bad_timestamp_is_told(
    kind: TimestampKind, make: Callable[[], Identity], stamped: datetime.datetime, reason: str
) -> None:
    found = judge(_sign(_options(kind, make(), stamped=stamped)), "x.exe", trust())
    assert (found.verdict, reason in found.reason) == (V.BAD_TIMESTAMP, True), found.reason
    assert found.reason.startswith('the timestamp by "Example Clock" is not valid: ')


def test_an_authority_expired_since_does_not_matter() -> None:
    authority = make_authority(CLOCK_ROOT, valid=(START, STAMPED + DAY))
    assert judge(_sign(Options(timestamps=[authority])), "x.exe", trust(now=LATER)).verdict is V.VALID


def _raw(oid: str, value: bytes) -> Options:
    return Options(unsigned={oid: [value]})


OTHER = b"another signature"
RAW: dict[str, tuple[Options, str]] = {
    "a token of another signature": (
        _raw(TOKEN, make_token(CLOCK, OTHER, STAMPED)),
        "the timestamp is not valid: it is the timestamp of another signature",
    ),
    "a countersignature of another signature": (
        _raw(COUNTERSIGNATURE, make_countersignature(CLOCK, OTHER, STAMPED)),
        "its digest is not the one that was signed",
    ),
    "nonsense as a token": (_raw(TOKEN, b"\x04\x01x"), "the timestamp is not valid: the signature cannot be read"),
    "nonsense as a countersignature": (
        _raw(COUNTERSIGNATURE, b"\x04\x01x"),
        "the timestamp is not valid: the countersignature cannot be read",
    ),
    "a signature of code as a token": (
        _raw(TOKEN, fixture("signed.cat")),
        "the timestamp is not valid: it is not a timestamp token",
    ),
}


@pytest.mark.parametrize(("options", "reason"), RAW.values(), ids=RAW)
def test_what_is_no_timestamp_is_bad(options: Options, reason: str) -> None:
    found = judge(_sign(options), "x.exe", trust())
    assert (found.verdict, reason in found.reason) == (V.BAD_TIMESTAMP, True), found.reason


def test_a_countersignature_needs_the_certificate_of_its_authority() -> None:
    signer, data = make_signer(pki().ca, key=rsa_key(1)), fixture("program.exe")
    stamp = make_countersignature(CLOCK, signature_value(sign_pe(data, signer)), STAMPED)
    found = judge(sign_pe(data, signer, _raw(COUNTERSIGNATURE, stamp)), "x.exe", trust())
    reason = "the timestamp is not valid: the certificate of its authority is missing"
    assert (found.verdict, found.reason) == (V.BAD_TIMESTAMP, reason)


@pytest.mark.parametrize(
    ("digest", "options", "verdict"),
    [
        # What Certum's authority wrote in 2019.
        ("sha256", {"content_type": "1.2.840.113549.1.9.16.1.4"}, V.VALID),
        # What VeriSign's authority wrote until 2012: a digest without the name of its algorithm.
        ("sha1", {"bare": True}, V.VALID),
        ("sha256", {"bare": True}, V.BAD_TIMESTAMP),
    ],
)
def test_odd_countersignatures_that_exist(digest: str, options: dict[str, Any], verdict: Verdict) -> None:
    signer, data = make_signer(pki().ca, key=rsa_key(1)), fixture("program.exe")
    authority = make_authority(CLOCK_ROOT, key=rsa_key())
    stamp = make_countersignature(authority, signature_value(sign_pe(data, signer)), STAMPED, digest, **options)
    held = Options(certificates=[signer, pki().ca, authority], unsigned={COUNTERSIGNATURE: [stamp]})
    found = judge(sign_pe(data, signer, held), "x.exe", trust())
    assert found.verdict is verdict, found.reason


def _indefinite(encoded: bytes, depth: int) -> bytes:
    """The outer values without their lengths, and an OCTET STRING in pieces: BER, as BouncyCastle writes tokens."""
    tag, contents = encoded[0], parser.parse(encoded)[4]
    if tag == 0x04:
        middle = len(contents) // 2
        pieces = [OctetString(piece).dump() for piece in (contents[:middle], contents[middle:])]
        return b"\x24\x80" + b"".join(pieces) + b"\0\0"
    if depth == 0 or not tag & 0x20:
        return encoded
    inner = []
    while contents:
        length = parser.peek(contents)
        inner.append(contents[:length])
        contents = contents[length:]
    is_signed_data = len(inner) > 3
    parts = [
        part if is_signed_data and number != 2 else _indefinite(part, depth - 1) for number, part in enumerate(inner)
    ]
    return bytes([tag, 0x80]) + b"".join(parts) + b"\0\0"


def test_a_token_in_ber_is_read() -> None:
    signer, data = make_signer(pki().ca, key=rsa_key(1)), fixture("program.exe")
    token = make_token(CLOCK, signature_value(sign_pe(data, signer)), STAMPED)
    ber = _indefinite(token, 6)
    # The signature in it may have these bytes by chance.
    assert ber.count(b"\x30\x80") >= 3
    assert b"\x24\x80" in ber
    found = judge(sign_pe(data, signer, Options(unsigned={TOKEN: [ber]})), "x.exe", trust(now=LATER))
    assert found.verdict is V.VALID, found.reason


def test_one_valid_timestamp_is_enough() -> None:
    bad = make_authority(make_root("O=Other, CN=Other Root"))
    for authorities in ([bad, CLOCK], [CLOCK, bad]):
        assert judge(_sign(Options(timestamps=authorities)), "x.exe", trust(now=LATER)).verdict is V.VALID
    both = Options(timestamps=[bad], countersigners=[CLOCK])
    found = judge(_sign(both), "x.exe", trust(now=LATER)).signatures[0].timestamp
    assert found is not None
    assert found.kind is TimestampKind.COUNTERSIGNATURE


def test_an_expired_signature_with_a_bad_timestamp_has_a_bad_timestamp() -> None:
    bad = make_authority(make_root("O=Other, CN=Other Root"))
    assert judge(_sign(Options(timestamps=[bad])), "x.exe", trust(now=LATER)).verdict is V.BAD_TIMESTAMP


@pytest.mark.parametrize(
    ("valid", "reason"),
    [
        ((START, STAMPED - DAY), "expired on 2026-02-28, and the timestamp is from 2026-03-01"),
        ((STAMPED + DAY, END), "is not valid before 2026-03-02, and the timestamp is from 2026-03-01"),
    ],
)
def test_a_timestamp_outside_of_the_signer_s_time_does_not_help(
    valid: tuple[datetime.datetime, datetime.datetime], reason: str
) -> None:
    found = judge(_sign(Options(timestamps=[CLOCK]), make_signer(pki().ca, valid=valid)), "x.exe", trust())
    assert (found.verdict, reason in found.reason) == (V.EXPIRED, True), found.reason


@pytest.mark.parametrize(("digest", "verdict"), [("sha1", V.VALID), ("md5", V.BAD_TIMESTAMP)])
def test_old_timestamps_may_have_sha1_but_not_md5(digest: str, verdict: Verdict) -> None:
    authority = make_authority(CLOCK_ROOT, key=rsa_key())
    data = fixture("program.exe")
    signer = make_signer(pki().ca, key=rsa_key(1))
    # An RSA signature is always the same, so that it can be stamped afterwards.
    signature = judge(sign_pe(data, signer), "x.exe", trust()).signatures[0]
    assert signature.verdict is V.VALID
    stamp = make_countersignature(authority, signature_value(sign_pe(data, signer)), STAMPED, digest)
    options = Options(certificates=[signer, pki().ca, authority], unsigned={COUNTERSIGNATURE: [stamp]})
    found = judge(sign_pe(data, signer, options), "x.exe", trust())
    assert found.verdict is verdict, found.reason
    assert verdict is V.VALID or found.reason == 'the timestamp by "Example Clock" is not valid: its digest is MD5'


def test_a_token_names_its_authority() -> None:
    """The certificate that a token names must be the one that signed: RFC 5816."""
    key, data, signer = rsa_key(), fixture("program.exe"), make_signer(pki().ca, key=rsa_key(1))
    named = make_authority(CLOCK_ROOT, key=key, serial=5)
    # The same name, number and key.
    other = make_authority(CLOCK_ROOT, key=key, serial=5, valid=(START, END - DAY))
    stamped = signature_value(sign_pe(data, signer))
    for certificate, verdict in ((named, V.VALID), (other, V.BAD_TIMESTAMP)):
        token = make_token(named, stamped, STAMPED, certificates=[certificate])
        found = judge(sign_pe(data, signer, Options(unsigned={TOKEN: [token]})), "x.exe", trust())
        assert found.verdict is verdict, found.reason
        assert verdict is V.VALID or 'it names another authority than "Example Clock"' in found.reason
