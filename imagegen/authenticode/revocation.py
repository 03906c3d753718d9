"""Reads CRLs that the operator gives, and finds a certificate in them. Pure: no CRL is downloaded here."""

import dataclasses
import datetime
import functools
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_der_public_key

from imagegen.authenticode.certificates import read_pem
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import Certificate, RevocationList, Trust

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
    found = [_read(der) for der in read_pem(data, "X509 CRL")]
    if not found:
        raise MalformedData("the file holds no CRL")
    return found


def _read(der: bytes) -> RevocationList:
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


def find_revocation(certificate: Certificate, issuer: Certificate, trust: Trust) -> tuple[Revocation | None, bool]:
    """Whether the certificate is revoked, and whether a current CRL of its issuer says so or the contrary."""
    is_checked = False
    for given in trust.revocation_lists:
        if given.issuer != issuer.subject.encoded or not _is_issued_by(given.der, issuer):
            continue
        revocation = _find(given.der, int.from_bytes(bytes.fromhex(certificate.serial), signed=True))
        if revocation:
            return revocation, True
        is_checked |= given.next_update is None or given.next_update >= trust.now
    return None, is_checked


def is_about(given: RevocationList, chain: Sequence[Certificate]) -> bool:
    """Whether a CA of the chain issued the CRL: then it says which certificates of that CA are revoked."""
    return any(given.issuer == ca.subject.encoded and _is_issued_by(given.der, ca) for ca in chain[1:])


def find_forged(given: RevocationList, chain: Sequence[Certificate]) -> Certificate | None:
    """The CA of the chain that the CRL names as its issuer, but whose key did not sign it."""
    found = _parsed(given.der)
    # A list that revokes nothing is false.
    extensions = () if found is None else found.extensions
    key_ids = [one.value.key_identifier for one in extensions if isinstance(one.value, x509.AuthorityKeyIdentifier)]
    for ca in chain[1:]:
        # A CA can have several keys. A CRL names the one that signs it.
        other_key = key_ids and ca.extensions.subject_key_id not in (None, *key_ids)
        if given.issuer == ca.subject.encoded and not other_key and not _is_issued_by(given.der, ca):
            return ca
    return None


@functools.lru_cache(maxsize=256)
def _is_issued_by(der: bytes, issuer: Certificate) -> bool:
    usage = issuer.extensions.key_usage
    found = _parsed(der)
    if found is None or (usage is not None and "crl_sign" not in usage):
        return False
    try:
        key = load_der_public_key(issuer.public_key)
        return found.is_signature_valid(key)  # type: ignore[arg-type]  # a key of another kind is a TypeError
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _find(der: bytes, serial: int) -> Revocation | None:
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
