"""Builds the chain from a certificate to a trusted root, and judges it: for one usage, at one time. Pure.

All chains that can be built are judged, and the best one counts, as on Windows. The search is bounded, because the
certificates in a signature are anybody's. Revocation is judged by the CRLs that the operator gives: none is downloaded
here.
"""

import dataclasses
import datetime
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key

from imagegen.authenticode.certificates import (
    BROKEN_DIGESTS,
    comparable_parts,
    decode_signature_algorithm,
    digest_label,
    is_acceptable_key,
    is_signature_right,
    read_pem,
)
from imagegen.authenticode.model import (
    ANY_USAGE,
    SEVERITY,
    Certificate,
    MalformedData,
    RevocationList,
    Trust,
    TrustedRoot,
    Verdict,
    counted,
    usage_names,
)

LARGEST_LIST: Final = 64 * 1024 * 1024
# After these, also older signatures are worth nothing: whoever has the key can forge them.
_COMPROMISED: Final = ("key_compromise", "ca_compromise", "aa_compromise")
_CRITICAL_KNOWN: Final = frozenset({x509.IssuingDistributionPoint.oid, x509.AuthorityKeyIdentifier.oid})


@dataclasses.dataclass(frozen=True)
class Revocation:
    """That a certificate is revoked, since when and why."""

    since: datetime.datetime
    reason: str

    def covers(self, timestamp: datetime.datetime | None) -> bool:
        """Whether it makes a signature with this timestamp invalid. None: the signature has no valid timestamp."""
        return timestamp is None or self.reason in _COMPROMISED or timestamp >= self.since

    def __str__(self) -> str:
        reason = "" if self.reason == "unspecified" else f" ({self.reason.replace('_', ' ')})"
        return f"revoked since {self.since:%Y-%m-%d %H:%M}{reason}"


def read_revocation_lists(data: bytes) -> list[RevocationList]:
    """The CRLs of a PEM or DER file."""
    if len(data) > LARGEST_LIST:
        raise MalformedData(f"the CRL has {len(data)} bytes, at most {LARGEST_LIST} are allowed")
    found = [_read_list(der) for der in read_pem(data, "X509 CRL")]
    if not found:
        raise MalformedData("the file holds no CRL")
    return found


def _read_list(der: bytes) -> RevocationList:
    found = _parsed(der)
    if found is None:
        raise MalformedData("the CRL cannot be read")
    for extension in found.extensions:
        if extension.critical and extension.oid not in _CRITICAL_KNOWN:
            raise MalformedData(f"the CRL has the critical extension {extension.oid.dotted_string}, which is not known")
        if isinstance(extension.value, x509.IssuingDistributionPoint) and extension.value.indirect_crl:
            raise MalformedData("the CRL is an indirect one, which is not supported")
    return RevocationList(
        der=der,
        issuer=found.issuer.public_bytes(),
        this_update=found.last_update_utc,
        next_update=found.next_update_utc,
    )


@functools.lru_cache(maxsize=64)
def _parsed(der: bytes) -> x509.CertificateRevocationList | None:
    try:
        found = x509.load_der_x509_crl(der)
        # Extensions are read when they are first needed, and their errors come then.
        _ = list(found.extensions)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension):
        return None
    return found


def find_revocation(certificate: Certificate, issuer: Certificate, trust: Trust) -> Revocation | None:
    """The row about the certificate in a CRL of its issuer."""
    serial = int.from_bytes(bytes.fromhex(certificate.serial), signed=True)
    lists = (one.der for one in trust.revocation_lists if one.issuer == issuer.subject.encoded)
    return next((row for der in lists if _is_list_of(der, issuer) and (row := _find_row(der, serial))), None)


def is_about(given: RevocationList, chain: Sequence[Certificate]) -> bool:
    """Whether a CA of the chain issued the CRL: then it says which certificates of that CA are revoked."""
    return any(given.issuer == ca.subject.encoded and _is_list_of(given.der, ca) for ca in chain[1:])


def find_forged(given: RevocationList, chain: Sequence[Certificate]) -> Certificate | None:
    """The CA of the chain that the CRL names as its issuer, but whose key did not sign it."""
    found = _parsed(given.der)
    # A list that revokes nothing is false.
    extensions = () if found is None else found.extensions
    key_ids = [one.value.key_identifier for one in extensions if isinstance(one.value, x509.AuthorityKeyIdentifier)]
    for ca in chain[1:]:
        # A CA can have several keys. A CRL names the one that signs it.
        other_key = key_ids and ca.extensions.subject_key_id not in (None, *key_ids)
        if given.issuer == ca.subject.encoded and not other_key and not _is_list_of(given.der, ca):
            return ca
    return None


@functools.lru_cache(maxsize=256)
def _is_list_of(der: bytes, issuer: Certificate) -> bool:
    usage = issuer.extensions.key_usage
    found = _parsed(der)
    if found is None or (usage is not None and "crl_sign" not in usage):
        return False
    try:
        key = load_der_public_key(issuer.public_key)
        return found.is_signature_valid(key)  # type: ignore[arg-type]  # a key of another kind is a TypeError
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _find_row(der: bytes, serial: int) -> Revocation | None:
    found = _parsed(der)
    row = None if found is None else found.get_revoked_certificate_by_serial_number(serial)
    if row is None:
        return None
    since, reason = row.revocation_date_utc, "unspecified"
    try:
        for extension in row.extensions:
            if isinstance(extension.value, x509.CRLReason):
                reason = extension.value.reason.name
            elif isinstance(extension.value, x509.InvalidityDate):
                since = min(since, extension.value.invalidity_date_utc)
    except (ValueError, x509.DuplicateExtension):
        # The row stands, whatever else it says.
        return Revocation(since, reason)
    return None if reason == "remove_from_crl" else Revocation(since, reason)


LONGEST_CHAIN: Final = 10
# Over all chains of one signer: the certificates that are looked at, and the signatures of CAs that are verified.
_MOST_STEPS: Final = 200
_MOST_CHECKS: Final = 100


@dataclasses.dataclass(frozen=True)
class ChainRequest:
    """What a chain is needed for."""

    usage: str
    at: datetime.datetime
    # The time of the valid timestamp, if there is one.
    timestamp: datetime.datetime | None
    # Any of these must be among the usages of the signer's key.
    key_usages: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Chain:
    """The best chain that was found, from the signer up. Its verdict is `valid` or says what is wrong with it."""

    certificates: tuple[Certificate, ...]
    verdict: Verdict
    reason: str = ""


def find_chain(signer: Certificate, others: Sequence[Certificate], trust: Trust, request: ChainRequest) -> Chain:
    """The best chain of the signer. `others` are the certificates that came with the signature."""
    best = _incomplete((signer,), others, trust)
    for certificates, root in _candidates(signer, others, trust):
        chain = _judge(certificates, root, trust, request) if root else _incomplete(certificates, others, trust)
        if _rank(chain) > _rank(best):
            best = chain
        if best.verdict is Verdict.VALID:
            break
    return best


def _rank(chain: Chain) -> tuple[int, int]:
    return SEVERITY.index(chain.verdict), len(chain.certificates)


def _candidates(
    signer: Certificate, others: Sequence[Certificate], trust: Trust
) -> Iterator[tuple[tuple[Certificate, ...], TrustedRoot | None]]:
    """Chains that end at a trusted root, and those that cannot be continued."""
    waiting: list[tuple[Certificate, ...]] = [(signer,)]
    checks = 0
    for _ in range(_MOST_STEPS):
        if not waiting:
            return
        chain = waiting.pop()
        last = chain[-1]
        root = trust.roots_by_certificate.get(last)
        if root:
            yield chain, root
            continue
        issuers = [] if len(chain) == LONGEST_CHAIN else _issuers(last, others, trust)
        tried = [issuer for issuer in issuers if issuer not in chain][: _MOST_CHECKS - checks]
        checks += len(tried)
        longer: list[tuple[Certificate, ...]] = [(*chain, issuer) for issuer in tried if _is_issued_by(last, issuer)]
        if not longer:
            yield chain, None
        # The first issuer is tried first.
        waiting.extend(reversed(longer))


def _issuers(certificate: Certificate, others: Sequence[Certificate], trust: Trust) -> list[Certificate]:
    """Every certificate with the issuer's name: roots first, then those with the key that the certificate names."""
    name, key_id = certificate.issuer.encoded, certificate.extensions.authority_key_id
    named = [*trust.known_issuers.get(name, ()), *(other for other in others if other.subject.encoded == name)]
    return sorted(
        dict.fromkeys(named),
        key=lambda issuer: (issuer not in trust.roots_by_certificate, issuer.extensions.subject_key_id != key_id),
    )


@functools.lru_cache(maxsize=4096)
def _is_issued_by(certificate: Certificate, issuer: Certificate) -> bool:
    try:
        algorithm = decode_signature_algorithm(certificate.algorithm)
    except MalformedData:
        return False
    return is_signature_right(issuer.public_key, algorithm, certificate.signature, certificate.signed)


def _incomplete(certificates: tuple[Certificate, ...], others: Sequence[Certificate], trust: Trust) -> Chain:
    last = certificates[-1]
    if last.is_self_issued and _is_issued_by(last, last):
        alone = len(certificates) == 1
        reason = (
            f'"{last.subject.short}" is self-signed, and is no trusted root'
            if alone
            else f'the chain ends at the root "{last.subject}", which is not trusted'
        )
    elif len(certificates) == LONGEST_CHAIN:
        reason = f"the chain has more than {LONGEST_CHAIN} certificates"
    elif _issuers(last, others, trust):
        reason = f'"{last.subject.short}" is not signed by the known certificate of its issuer "{last.issuer}"'
    else:
        reason = f'the certificate of "{last.issuer}" is missing, which issued "{last.subject.short}"'
    return Chain(certificates, Verdict.UNTRUSTED, reason)


def _judge(certificates: tuple[Certificate, ...], root: TrustedRoot, trust: Trust, request: ChainRequest) -> Chain:
    """The verdict on a chain to a trusted root. The most severe fault is told."""
    faults = (
        (Verdict.UNTRUSTED, _structure_fault(certificates) or _root_fault(certificates[0], root, request)),
        (Verdict.REVOKED, _revocation_fault(certificates, trust, request)),
        (Verdict.WRONG_USAGE, _usage_fault(certificates, request)),
        (Verdict.EXPIRED, _validity_fault(certificates, request)),
        (Verdict.WEAK_DIGEST, _digest_fault(certificates)),
    )
    verdict, reason = next(((verdict, reason) for verdict, reason in faults if reason), (Verdict.VALID, ""))
    return Chain(certificates, verdict, reason)


def _structure_fault(certificates: tuple[Certificate, ...]) -> str:
    """RFC 5280, 6.1: who may issue certificates, how far down, and for whom."""
    for depth, certificate in enumerate(certificates):
        extensions, name = certificate.extensions, certificate.subject.short
        is_root = depth == len(certificates) - 1
        if not is_acceptable_key(certificate.public_key):
            return f'the key of "{name}" ({certificate.key}) is too short, or of an unsupported kind'
        if is_root and depth == 0:
            # A root that signs code itself: the operator trusts just this certificate.
            continue
        if extensions.unknown_critical and not is_root:
            return f'"{name}" has the critical extension {extensions.unknown_critical[0]}, which is not known'
        if depth == 0:
            continue
        # Old roots have no extensions. They are trusted by name.
        if extensions.is_ca is False or (extensions.is_ca is None and not is_root):
            return f'"{name}" is not a CA, but issued "{certificates[depth - 1].subject.short}"'
        if extensions.key_usage is not None and "key_cert_sign" not in extensions.key_usage:
            return f'the key of "{name}" may not sign certificates'
        below = sum(not lower.is_self_issued for lower in certificates[1:depth])
        if extensions.longest_path is not None and below > extensions.longest_path:
            return f'"{name}" allows {counted(extensions.longest_path, "CA")} below itself, but has {below}'
        for lower in certificates[:depth]:
            if not _is_permitted(certificate, lower) and (not lower.is_self_issued or lower is certificates[0]):
                return f'"{name}" may not issue certificates for "{lower.subject}"'
    return ""


def _is_permitted(ca: Certificate, lower: Certificate) -> bool:
    permitted, excluded = ca.extensions.permitted_names, ca.extensions.excluded_names
    if permitted is None and not excluded:
        return True
    try:
        subject = comparable_parts(lower.subject)
    except MalformedData:
        # A name that cannot be compared is in no permitted part, and may be in an excluded one.
        return False

    def is_within(beginning: tuple[str, ...]) -> bool:
        return subject[: len(beginning)] == beginning

    return (permitted is None or any(map(is_within, permitted))) and not any(map(is_within, excluded))


def _root_fault(signer: Certificate, root: TrustedRoot, request: ChainRequest) -> str:
    """What the list of roots says against this use of the root."""
    name, usage = root.certificate.subject.short, request.usage
    if root.usages is not None and usage not in root.usages:
        return f'the root "{name}" is not trusted for {usage_names([usage])}'
    if root.disabled_since and request.at >= root.disabled_since and _concerns(usage, root.disabled_usages):
        return f'the root "{name}" is not trusted any more since {root.disabled_since:%Y-%m-%d}'
    if root.issued_before and signer.not_before >= root.issued_before and _concerns(usage, root.issued_before_usages):
        return (
            f'the root "{name}" is trusted only for certificates from before {root.issued_before:%Y-%m-%d}, '
            f'but "{signer.subject.short}" is from {signer.not_before:%Y-%m-%d}'
        )
    return ""


def _concerns(usage: str, usages: frozenset[str] | None) -> bool:
    return usages is None or usage in usages


def _revocation_fault(certificates: tuple[Certificate, ...], trust: Trust, request: ChainRequest) -> str:
    for certificate, issuer in itertools.pairwise(certificates):
        revocation = find_revocation(certificate, issuer, trust)
        if revocation and revocation.covers(request.timestamp):
            return f'"{certificate.subject.short}" is {revocation}'
    return ""


def _usage_fault(certificates: tuple[Certificate, ...], request: ChainRequest) -> str:
    signer = certificates[0]
    wanted = usage_names([request.usage])
    for certificate in certificates:
        usages, name = certificate.extensions.extended_usage, certificate.subject.short
        if certificate is signer:
            if usages is None:
                return f'the certificate of "{name}" names no extended usage, but must name {wanted}'
            if request.usage not in usages:
                return f'the certificate of "{name}" is for {usage_names(usages)}, not for {wanted}'
        elif usages is not None and not usages & {request.usage, ANY_USAGE}:
            return f'the CA "{name}" is for {usage_names(usages)}, not for {wanted}'
    key_usage = signer.extensions.key_usage
    if key_usage is not None and not key_usage & request.key_usages:
        return f'the key of "{signer.subject.short}" may not sign'
    return ""


def _validity_fault(certificates: tuple[Certificate, ...], request: ChainRequest) -> str:
    for certificate in certificates:
        name = certificate.subject.short
        if request.at > certificate.not_after:
            return f'the certificate of "{name}" expired on {certificate.not_after:%Y-%m-%d}'
        if request.at < certificate.not_before:
            return f'the certificate of "{name}" is not valid before {certificate.not_before:%Y-%m-%d}'
    return ""


def _digest_fault(certificates: tuple[Certificate, ...]) -> str:
    for certificate in certificates[:-1]:
        if certificate.digest in BROKEN_DIGESTS:
            return f'the certificate of "{certificate.subject.short}" is signed with {digest_label(certificate.digest)}'
    return ""
