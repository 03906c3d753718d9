"""Which chains of certificates are accepted, and what is said about the others."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from imagegen.authenticode import chains
from imagegen.authenticode.model import SignerStrength, Verdict
from imagegen.base.errors import VerificationError
from imagegen.trust.sources import CrlUse
from tests.authenticode.pki import (
    CODE,
    END,
    LATER,
    LIFETIME,
    NOW,
    STAMP,
    STAMPED,
    START,
    Identity,
    issue,
    make_authority,
    make_ca,
    make_crl,
    make_name,
    make_root,
    make_signer,
    pki,
    rsa_key,
    with_digest,
)
from tests.authenticode.signing import Options, sign_pe
from tests.authenticode.support import fixture, judge, trust

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imagegen.authenticode.model import Certificate

V = Verdict
DAY = datetime.timedelta(days=1)
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


def _judge(signer: Identity, *, options: Options | None = None, **trusted: Any) -> tuple[Verdict, str]:  # noqa: ANN401
    """The verdict on a program that this identity signed."""
    found = judge(sign_pe(fixture("program.exe"), signer, options), "program.exe", trust(**trusted))
    return found.verdict, found.reason


def _below(ca: Identity, **options: Any) -> Identity:  # noqa: ANN401 - those of `issue`
    return make_signer(make_ca(ca, "O=Example, CN=Example Issuing CA"), **options)


def _named(*names: str, permitted: bool = True) -> tuple[x509.ExtensionType, bool]:
    subtrees = [x509.DirectoryName(make_name(name)) for name in names]
    return x509.NameConstraints(subtrees if permitted else None, None if permitted else subtrees), True


ROOT = pki().root
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")
MAIL = x509.NameConstraints([x509.RFC822Name("example.com")], None)
CASES: dict[str, tuple[Callable[[], Identity], Verdict, str]] = {
    "as it should be": (lambda: make_signer(make_ca(ROOT)), V.VALID, "without a timestamp"),
    "RSA": (lambda: make_signer(make_ca(ROOT, key=rsa_key(1)), key=rsa_key()), V.VALID, "without a timestamp"),
    "a P-384 key": (lambda: make_signer(make_ca(ROOT), key=ec.generate_private_key(ec.SECP384R1())), V.VALID, ""),
    "directly below the root": (lambda: make_signer(ROOT), V.VALID, ""),
    "self-signed": (
        lambda: issue("O=Example Inc, CN=Example Inc", usages=[CODE], key_usages=["digital_signature"]),
        V.UNTRUSTED,
        '"Example Inc" is self-signed, and is no trusted root',
    ),
    "below another root": (
        lambda: make_signer(make_ca(make_root("O=Other, CN=Other Root"))),
        V.UNTRUSTED,
        'the certificate of "CN=Other Root, O=Other" is missing, which issued "Example Code CA"',
    ),
    "below a root of the same name": (
        lambda: make_signer(make_ca(make_root())),
        V.UNTRUSTED,
        '"Example Code CA" is not signed by the known certificate of its issuer "CN=Example Root, O=Example"',
    ),
    "below a program's certificate": (
        lambda: make_signer(make_signer(ROOT, "O=Example, CN=No CA")),
        V.UNTRUSTED,
        '"No CA" is not a CA, but issued "Example Inc"',
    ),
    "below a CA that is none any more": (lambda: make_signer(make_ca(ROOT, ca=False)), V.UNTRUSTED, "is not a CA"),
    "below a CA that may not issue": (
        lambda: make_signer(make_ca(ROOT, key_usages=["crl_sign"])),
        V.UNTRUSTED,
        'the key of "Example Code CA" may not sign certificates',
    ),
    "below too many CAs": (
        lambda: _below(make_ca(ROOT, longest_path=0)),
        V.UNTRUSTED,
        '"Example Code CA" allows 0 CAs below itself, but has 1',
    ),
    "below as many CAs as allowed": (lambda: _below(make_ca(ROOT, longest_path=1)), V.VALID, ""),
    "a critical extension": (
        lambda: make_signer(make_ca(ROOT), extensions=[(UNKNOWN, True)]),
        V.UNTRUSTED,
        '"Example Inc" has the critical extension 1.2.3.4, which is not known',
    ),
    "an extension that is not critical": (
        lambda: make_signer(make_ca(ROOT), extensions=[(UNKNOWN, False)]),
        V.VALID,
        "",
    ),
    "a permitted name": (lambda: make_signer(make_ca(ROOT, extensions=[_named("C=US, O=Example Inc")])), V.VALID, ""),
    # In another encoding, with other capitals and blanks.
    "a permitted name in another form": (
        lambda: make_signer(make_ca(ROOT, extensions=[_named("C=us, O=EXAMPLE  inc")])),
        V.VALID,
        "",
    ),
    "an excluded name in another form": (
        lambda: make_signer(make_ca(ROOT, extensions=[_named("C=us, O=EXAMPLE  inc", permitted=False)])),
        V.UNTRUSTED,
        "may not issue certificates for",
    ),
    "another name than permitted": (
        lambda: make_signer(make_ca(ROOT, extensions=[_named("C=US, O=Other")])),
        V.UNTRUSTED,
        '"Example Code CA" may not issue certificates for "CN=Example Inc, O=Example Inc, C=US"',
    ),
    "an excluded name": (
        lambda: make_signer(make_ca(ROOT, extensions=[_named("C=US", permitted=False)])),
        V.UNTRUSTED,
        "may not issue certificates for",
    ),
    "another name than excluded": (
        lambda: make_signer(make_ca(ROOT, extensions=[_named("C=DE", permitted=False)])),
        V.VALID,
        "",
    ),
    "permitted mail addresses": (lambda: make_signer(make_ca(ROOT, extensions=[(MAIL, True)])), V.VALID, ""),
    "for servers": (
        lambda: make_signer(make_ca(ROOT), usages=[SERVER]),
        V.WRONG_USAGE,
        'the certificate of "Example Inc" is for server authentication, not for code signing',
    ),
    "for timestamps": (lambda: make_signer(make_ca(ROOT), usages=[STAMP]), V.WRONG_USAGE, "is for time stamping, not"),
    "for nothing named": (
        lambda: make_signer(make_ca(ROOT), usages=[]),
        V.WRONG_USAGE,
        "names no extended usage, but must name code signing",
    ),
    "for any usage": (
        lambda: make_signer(make_ca(ROOT), usages=[ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]),
        V.WRONG_USAGE,
        "is for any usage, not for code signing",
    ),
    "for servers too": (lambda: make_signer(make_ca(ROOT), usages=[SERVER, CODE]), V.VALID, ""),
    "below a CA for servers": (
        lambda: make_signer(make_ca(ROOT, usages=[SERVER])),
        V.WRONG_USAGE,
        'the CA "Example Code CA" is for server authentication, not for code signing',
    ),
    "below a CA for code": (lambda: make_signer(make_ca(ROOT, usages=[CODE])), V.VALID, ""),
    "a key that may not sign": (
        lambda: make_signer(make_ca(ROOT), key_usages=["key_encipherment"]),
        V.WRONG_USAGE,
        'the key of "Example Inc" may not sign',
    ),
    "a key without usages": (lambda: make_signer(make_ca(ROOT), key_usages=None), V.VALID, ""),
    "expired": (
        lambda: make_signer(make_ca(ROOT), valid=(START, NOW - DAY)),
        V.EXPIRED,
        'the certificate of "Example Inc" expired on 2026-05-31, and the signature has no timestamp',
    ),
    "below an expired CA": (lambda: make_signer(make_ca(ROOT, valid=(START, NOW - DAY))), V.EXPIRED, "Code CA"),
    "not valid yet": (
        lambda: make_signer(make_ca(ROOT), valid=(NOW + DAY, END)),
        V.EXPIRED,
        'the certificate of "Example Inc" is not valid before 2026-06-02, and the signature has no timestamp',
    ),
    "a short key": (
        lambda: make_signer(make_ca(ROOT), key=rsa_key(9, 1024)),
        V.VALID,
        "",
    ),
    "the wrong usage, and expired": (
        lambda: make_signer(make_ca(ROOT), usages=[SERVER], valid=(START, NOW - DAY)),
        V.WRONG_USAGE,
        "server authentication",
    ),
}


@pytest.mark.parametrize(("make", "verdict", "reason"), CASES.values(), ids=CASES)
def test_chain(make: Callable[[], Identity], verdict: Verdict, reason: str) -> None:
    found = _judge(make())
    assert (found[0], reason in found[1]) == (verdict, True), found


def test_a_root_that_came_with_the_signature_is_not_trusted() -> None:
    root = make_root("O=Other, CN=Other Root")
    signer = make_signer(make_ca(root))
    assert _judge(signer, options=Options(certificates=signer.chain)) == (
        V.UNTRUSTED,
        'the chain ends at the root "CN=Other Root, O=Other", which is not trusted',
    )


def test_a_missing_ca_is_named() -> None:
    signer = pki().signer
    options = Options(certificates=[signer])
    missing = 'the certificate of "CN=Example Code CA, O=Example" is missing, which issued "Example Inc"'
    assert _judge(signer, options=options) == (V.UNTRUSTED, missing)


def test_a_signature_needs_the_certificate_of_its_signer() -> None:
    found = _judge(pki().signer, options=Options(certificates=[pki().ca]))
    assert found == (V.UNTRUSTED, "the signature does not hold the certificate of its signer")


def test_another_certificate_with_the_same_name_and_number_did_not_sign() -> None:
    real = make_signer(pki().ca, serial=7)
    other = make_signer(pki().ca, serial=7)
    options = Options(certificates=[Identity(other.certificate, real.key, other.issuer), pki().ca])
    assert _judge(real, options=options) == (V.ALTERED, 'the signature was changed: it is not one by "Example Inc"')


def test_a_certificate_can_be_trusted_itself() -> None:
    alone = issue("O=Example Inc, CN=Example Inc", usages=[CODE], key_usages=["digital_signature"])
    found = judge(sign_pe(fixture("program.exe"), alone), "x.exe", trust(alone))
    assert (found.verdict, len(found.signatures[0].chain)) == (V.VALID, 1)


def test_the_best_of_several_chains_counts() -> None:
    """A CA with one key and two certificates: an expired one of another root, and a good one."""
    key = rsa_key(1)
    old = make_ca(make_root("O=Old, CN=Old Root"), key=key, valid=(START, NOW - DAY))
    good = make_ca(ROOT, key=key)
    signer = make_signer(old)
    for certificates in ([signer, old, good], [signer, good, old]):
        data = sign_pe(fixture("program.exe"), signer, Options(certificates=certificates))
        old_root = old.chain[-1]
        for roots in ((ROOT,), (old_root, ROOT), (ROOT, old_root)):
            found = judge(data, "x.exe", trust(*roots))
            assert found.verdict is V.VALID, found.reason
            assert found.signatures[0].chain[-1] == ROOT.read


def test_a_circle_of_cas_has_an_end() -> None:
    one, two = rsa_key(1), rsa_key(2)
    first = issue("O=Circle, CN=One", key=one, ca=True)
    second = issue("O=Circle, CN=Two", first, key=two, ca=True)
    back = issue("O=Circle, CN=One", second, key=one, ca=True)
    signer = make_signer(second)
    verdict, reason = _judge(signer, options=Options(certificates=[signer, second, back]))
    assert (verdict, "CN=Two" in reason or "CN=One" in reason) == (V.UNTRUSTED, True)


def test_a_long_chain_has_an_end() -> None:
    ca = ROOT
    for number in range(12):
        ca = make_ca(ca, f"O=Example, CN=CA {number}")
    assert _judge(make_signer(ca)) == (V.UNTRUSTED, "the chain has more than 10 certificates")


def test_a_maze_of_cas_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names with thirty certificates each, which have all issued one another: ways without end, none to a root."""
    one, two = rsa_key(1), rsa_key(2)
    first = issue("O=Maze, CN=One", key=one, ca=True)
    second = issue("O=Maze, CN=Two", first, key=two, ca=True)
    maze = [issue("O=Maze, CN=One", second, key=one, ca=True, serial=100 + number) for number in range(30)]
    maze += [issue("O=Maze, CN=Two", first, key=two, ca=True, serial=200 + number) for number in range(30)]
    checks: list[str] = []
    is_issued_by = chains._is_issued_by

    def count(certificate: Certificate, issuer: Certificate) -> bool:
        checks.append(certificate.serial)
        return is_issued_by(certificate, issuer)

    monkeypatch.setattr(chains, "_is_issued_by", count)
    signer = make_signer(first)
    assert _judge(signer, options=Options(certificates=[signer, *maze]))[0] is V.UNTRUSTED
    assert len(checks) <= 200


def test_a_very_long_name_makes_a_certificate_unreadable() -> None:
    signer = make_signer(
        pki().ca, ", ".join(["C=US", *(f"OU={'x' * 60}{number}" for number in range(40)), "CN=Example"])
    )
    reason = "the signature does not hold the certificate of its signer"
    assert _judge(signer) == (V.UNTRUSTED, reason)


def test_many_certificates_are_refused() -> None:
    others = [make_ca(ROOT, f"O=Example, CN=CA {number}", key=rsa_key(1)) for number in range(64)]
    verdict, reason = _judge(pki().signer, options=Options(certificates=[pki().signer, *others]))
    assert (verdict, reason) == (
        V.ALTERED,
        "the signature is damaged: it holds 65 certificates, at most 64 are allowed",
    )


def test_a_certificate_signed_with_md5_is_weak() -> None:
    root = make_root(key=rsa_key())
    signer = make_signer(with_digest(make_ca(root), "md5"))
    found = judge(sign_pe(fixture("program.exe"), signer), "x.exe", trust(root))
    reason = 'the certificate of "Example Code CA" is signed with MD5'
    assert (found.verdict, found.reason) == (V.WEAK_DIGEST, reason)


def test_a_chain_with_sha1_and_short_keys_is_not_weak() -> None:
    """Nobody can make a second certificate for a digest that exists: old public chains have SHA-1 and RSA 1024."""
    root = make_root(key=rsa_key(1, 1024))
    ca = with_digest(make_ca(root, key=rsa_key(2, 1024)), "sha1")
    signer = with_digest(make_signer(ca, key=rsa_key(3, 1024)), "sha1")
    found = judge(sign_pe(fixture("program.exe"), signer), "x.exe", trust(root))
    assert found.verdict is V.VALID
    assert found.signature
    assert [(one.digest, one.key) for one in found.signature.chain[:2]] == [("sha1", "RSA 1024")] * 2


def test_a_timestamp_with_sha1_counts() -> None:
    root = make_root(key=rsa_key())
    clock = with_digest(make_authority(root), "sha1")
    data = sign_pe(fixture("program.exe"), pki().signer, Options(countersigners=[clock]))
    found = judge(data, "x.exe", trust(pki().root, root))
    assert found.verdict is V.VALID
    assert found.signature
    assert found.signature.timestamp
    assert found.signature.timestamp.chain[0].digest == "sha1"


def test_pss_signatures_are_verified() -> None:
    signer = make_signer(pki().ca, key=rsa_key())
    assert _judge(signer, options=Options(pss=True))[0] is V.VALID


@pytest.mark.parametrize(
    ("digest", "signer_digest", "verdict"),
    [
        ("sha256", "sha256", V.VALID),
        ("sha384", "sha384", V.VALID),
        ("sha1", "sha1", V.WEAK_DIGEST),
        ("sha256", "sha1", V.WEAK_DIGEST),
        ("sha1", "sha256", V.WEAK_DIGEST),
    ],
)
def test_weak_digests(digest: str, signer_digest: str, verdict: Verdict) -> None:
    found = _judge(pki().signer, options=Options(digest=digest, signer_digest=signer_digest))
    assert found[0] is verdict
    assert verdict is V.VALID or found[1] == "only SHA-1 protects the file"


def _revoked(
    since: datetime.datetime = STAMPED, reason: x509.ReasonFlags | None = None, *, who: Identity | None = None
) -> list[bytes]:
    return [make_crl(pki().ca, [(who or pki().signer, since, reason)])]


STAMPED_OPTIONS = Options(timestamps=[pki().clock])
REVOCATIONS: dict[str, tuple[Sequence[bytes], Options | None, Verdict, str]] = {
    "no timestamp": (_revoked(), None, V.REVOKED, '"Example Inc" is revoked since 2026-03-01 00:00'),
    "before the timestamp": (_revoked(STAMPED - DAY), STAMPED_OPTIONS, V.REVOKED, "revoked since 2026-02-28 00:00"),
    "at the timestamp": (_revoked(STAMPED), STAMPED_OPTIONS, V.REVOKED, "revoked since 2026-03-01"),
    "after the timestamp": (_revoked(STAMPED + DAY), STAMPED_OPTIONS, V.VALID, "timestamped on 2026-03-01"),
    "a stolen key, after the timestamp": (
        _revoked(STAMPED + DAY, x509.ReasonFlags.key_compromise),
        STAMPED_OPTIONS,
        V.REVOKED,
        "revoked since 2026-03-02 00:00 (key compromise)",
    ),
    "superseded, after the timestamp": (
        _revoked(STAMPED + DAY, x509.ReasonFlags.superseded),
        STAMPED_OPTIONS,
        V.VALID,
        "",
    ),
    "no longer revoked": (_revoked(reason=x509.ReasonFlags.remove_from_crl), None, V.VALID, ""),
    "another certificate": (_revoked(who=pki().clock), None, V.VALID, ""),
    "the CA": ([make_crl(ROOT, [(pki().ca, STAMPED, None)])], None, V.REVOKED, '"Example Code CA" is revoked'),
    "a CRL with another key": (
        [make_crl(pki().ca, [(pki().signer, STAMPED, None)], key=pki().clock.key)],
        None,
        V.VALID,
        "",
    ),
    "a CRL that is too old": (
        [make_crl(pki().ca, [(pki().signer, STAMPED, None)], until=NOW - DAY)],
        None,
        V.REVOKED,
        "",
    ),
    "the timestamp authority": (
        [make_crl(pki().clock_root, [(pki().clock, STAMPED - DAY, None)])],
        STAMPED_OPTIONS,
        V.BAD_TIMESTAMP,
        'the timestamp by "Example Clock" is not valid: "Example Clock" is revoked since 2026-02-28',
    ),
}


@pytest.mark.parametrize(("crls", "options", "verdict", "reason"), REVOCATIONS.values(), ids=REVOCATIONS)
def test_revocation(crls: Sequence[bytes], options: Options | None, verdict: Verdict, reason: str) -> None:
    found = _judge(pki().signer, options=options, crls=crls)
    assert (found[0], reason in found[1]) == (verdict, True), found


def test_a_crl_of_a_ca_that_may_not_sign_crls_counts_for_nothing() -> None:
    ca = make_ca(ROOT, key_usages=["key_cert_sign"])
    signer = make_signer(ca)
    crls = [make_crl(ca, [(signer, STAMPED, None)]), make_crl(ROOT)]
    assert judge(sign_pe(fixture("program.exe"), signer), "x.exe", trust(crls=crls)).verdict is V.VALID


@pytest.mark.parametrize(
    ("crl", "forged"),
    [
        (make_crl(pki().ca, key=pki().clock.key), True),
        (make_crl(pki().ca, key=pki().clock.key, key_id_of=pki().ca), True),
        # Another key of a CA with this name signed it, and it says so.
        (make_crl(pki().ca, key=pki().clock.key, key_id_of=pki().clock), False),
        (make_crl(pki().clock_root), False),
        (make_crl(pki().ca), False),
    ],
)
def test_a_crl_that_its_ca_did_not_sign_is_refused(crl: bytes, *, forged: bool) -> None:
    found = judge(sign_pe(fixture("program.exe"), pki().signer), "x.exe", trust())
    crls = CrlUse({"signing.crl": crl})
    with pytest.raises(VerificationError, match="did not sign it") if forged else contextlib.nullcontext():
        crls.reject_forged([found.signatures[0].chain])


RSA_SIGNER = make_signer(make_ca(ROOT, key=rsa_key(1)), key=rsa_key())
SHA1_SIGNER = with_digest(RSA_SIGNER, "sha1")


@pytest.mark.parametrize(
    ("signer", "strength", "verdict", "reason"),
    [
        (RSA_SIGNER, SignerStrength(least_rsa_bits=RSA_SIGNER.key.key_size), V.VALID, ""),
        (RSA_SIGNER, SignerStrength(least_rsa_bits=16384), V.WEAK_CERTIFICATE, "bits, but 16384 are required"),
        (pki().signer, SignerStrength(least_rsa_bits=16384), V.VALID, ""),
        (SHA1_SIGNER, SignerStrength(), V.VALID, ""),
        (SHA1_SIGNER, SignerStrength(sha1_certificates=False), V.WEAK_CERTIFICATE, "is signed with SHA-1 or weaker"),
        (RSA_SIGNER, SignerStrength(sha1_certificates=False), V.VALID, ""),
    ],
)
def test_a_signer_is_as_strong_as_the_config_requires(
    signer: Identity, strength: SignerStrength, verdict: Verdict, reason: str
) -> None:
    found = _judge(signer, strength=strength)
    assert (found[0], reason in found[1]) == (verdict, True), found


@pytest.mark.parametrize(("now", "verdict"), [(NOW, V.VALID), (LATER, V.EXPIRED)])
def test_a_lifetime_signer_ends_with_its_certificate(now: datetime.datetime, verdict: Verdict) -> None:
    signer = make_signer(pki().ca, usages=[CODE, LIFETIME])
    found = _judge(signer, options=STAMPED_OPTIONS, now=now)
    assert found[0] is verdict
    assert verdict is V.VALID or "(lifetime signing)" in found[1]


def test_an_authority_is_no_signer() -> None:
    assert _judge(make_authority(ROOT))[0] is V.WRONG_USAGE
