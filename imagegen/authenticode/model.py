"""The public types: what is told about a file, its signatures and their certificates. Nothing is read or computed here.

A file has one verdict, and each of its signatures has one. The first that applies counts, in this order:

1. `unsigned`: the file has no signature, and no given catalogue lists it.
2. `altered`: the file is not the one that was signed: a digest differs, or the signature itself is damaged.
3. `untrusted`: no chain of certificates leads from the signer to a trusted root.
4. `revoked`: a CRL that was given revokes a certificate of the chain.
5. `wrong usage`: a certificate of the chain may not be used to sign code.
6. `bad timestamp`: there are timestamps, and none of them is valid.
7. `expired`: the certificates had expired at the time that counts: the timestamp's, or now if there is none.
8. `weak digest`: everything else is right, but MD5 or SHA-1 is all that protects the file.
9. `weak certificate`: everything else is right, but the signer's certificate is weaker than the operator allows.
10. `valid`.

The verdict on a file is that of its first signature, which is the only one that Windows judges. There is one
exception: files are signed twice for the sake of old Windows, first with SHA-1 and then, nested, with SHA-256. If the
first signature is a weak one, and neither altered, revoked nor of the wrong usage, and a nested one is `valid`, the
file is `valid`, and the nested signature is the one that counts (`Verification.signature`).
"""

import dataclasses
import datetime
import enum
import functools
from collections.abc import Iterable, Mapping
from typing import Final


class MalformedData(Exception):
    """The bytes are not what they should be. The message says which part, and follows "the signature is damaged: "."""


def counted(number: int, noun: str) -> str:
    """`1 byte`, `2 bytes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


CODE_SIGNING: Final = "1.3.6.1.5.5.7.3.3"
TIME_STAMPING: Final = "1.3.6.1.5.5.7.3.8"
ANY_USAGE: Final = "2.5.29.37.0"
# A signature by such a certificate ends with the certificate, timestamp or not.
LIFETIME_SIGNING: Final = "1.3.6.1.4.1.311.10.3.13"

_NAMES: Final = {
    CODE_SIGNING: "code signing",
    TIME_STAMPING: "time stamping",
    ANY_USAGE: "any usage",
    LIFETIME_SIGNING: "lifetime signing",
    "1.3.6.1.5.5.7.3.1": "server authentication",
    "1.3.6.1.5.5.7.3.2": "client authentication",
    "1.3.6.1.5.5.7.3.4": "e-mail protection",
    "1.3.6.1.5.5.7.3.9": "OCSP signing",
}


def usage_names(usages: Iterable[str]) -> str:
    """The usages as a list for people."""
    return ", ".join(_NAMES.get(usage, usage) for usage in sorted(usages)) or "none"


class Verdict(enum.StrEnum):
    """What a signature is worth. The module's docstring has the order."""

    VALID = "valid"
    UNSIGNED = "unsigned"
    ALTERED = "altered"
    UNTRUSTED = "untrusted"
    REVOKED = "revoked"
    WRONG_USAGE = "wrong usage"
    BAD_TIMESTAMP = "bad timestamp"
    EXPIRED = "expired"
    WEAK_DIGEST = "weak digest"
    WEAK_CERTIFICATE = "weak certificate"


# From the most severe to the least.
SEVERITY: Final = (
    Verdict.UNSIGNED,
    Verdict.ALTERED,
    Verdict.UNTRUSTED,
    Verdict.REVOKED,
    Verdict.WRONG_USAGE,
    Verdict.BAD_TIMESTAMP,
    Verdict.EXPIRED,
    Verdict.WEAK_DIGEST,
    Verdict.WEAK_CERTIFICATE,
    Verdict.VALID,
)


class FileKind(enum.StrEnum):
    """The forms of files that can hold a signature, and the rest."""

    PE = "PE"
    MSI = "MSI"
    SCRIPT = "script"
    CATALOGUE = "catalogue"
    OTHER = "other"


class TimestampKind(enum.StrEnum):
    """The two forms of timestamps in a signature."""

    RFC3161 = "RFC 3161"
    COUNTERSIGNATURE = "PKCS #9 countersignature"


@dataclasses.dataclass(frozen=True)
class Name:
    """The subject or the issuer of a certificate: its attributes with their short types, in the certificate's order."""

    attributes: tuple[tuple[str, str], ...]
    # As encoded in the certificate. Chains are built with it, as Windows does: names that only look alike differ.
    encoded: bytes = dataclasses.field(default=b"", repr=False, compare=False)

    def __str__(self) -> str:
        return ", ".join(f"{kind}={_quoted(value)}" for kind, value in self.attributes) or "(no name)"

    def values(self, kind: str) -> tuple[str, ...]:
        """All values of a type of attribute, for example of `O`."""
        return tuple(value for found, value in self.attributes if found == kind)

    @property
    def short(self) -> str:
        """The common name; of a name without one, the whole name."""
        return next(iter(self.values("CN")), "") or str(self)


def _quoted(value: str) -> str:
    plain = value and value == value.strip() and not set(value) & set(',+"\\<>;=\r\n')
    return value if plain else '"' + value.replace('"', '""') + '"'


@dataclasses.dataclass(frozen=True)
class Extensions:
    """What the extensions of a certificate allow. None: the extension is absent, and nothing is restricted."""

    is_ca: bool | None = None
    longest_path: int | None = None
    key_usage: frozenset[str] | None = None
    # Object identifiers in dotted form.
    extended_usage: frozenset[str] | None = None
    # Critical extensions that imagegen does not know: such a certificate must be refused (RFC 5280, 4.2).
    unknown_critical: tuple[str, ...] = ()
    # Beginnings of the subjects that certificates below this one may have, and may not have. Each part is in the form
    # in which RFC 5280, 7.1, compares them.
    permitted_names: tuple[tuple[str, ...], ...] | None = None
    excluded_names: tuple[tuple[str, ...], ...] = ()
    subject_key_id: bytes | None = None
    authority_key_id: bytes | None = None


@dataclasses.dataclass(frozen=True)
class Certificate:
    """An X.509 certificate. Two with the same bytes are equal."""

    der: bytes = dataclasses.field(repr=False)
    subject: Name = dataclasses.field(compare=False)
    issuer: Name = dataclasses.field(compare=False)
    # In hexadecimal, as encoded: two capital digits for each byte.
    serial: str = dataclasses.field(compare=False)
    # Windows calls the SHA-1 the thumbprint. Both are in capital hexadecimal digits.
    sha1: str = dataclasses.field(compare=False)
    sha256: str = dataclasses.field(compare=False)
    not_before: datetime.datetime = dataclasses.field(compare=False)
    not_after: datetime.datetime = dataclasses.field(compare=False)
    # The digest of the issuer's signature ("sha256"), and the public key ("RSA 2048", "EC secp256r1").
    digest: str = dataclasses.field(compare=False)
    key: str = dataclasses.field(compare=False)
    extensions: Extensions = dataclasses.field(repr=False, compare=False)
    # The parts that a verification needs: the public key, and what the issuer signed, with which algorithm, and how.
    public_key: bytes = dataclasses.field(repr=False, compare=False)
    signed: bytes = dataclasses.field(repr=False, compare=False)
    algorithm: bytes = dataclasses.field(repr=False, compare=False)
    signature: bytes = dataclasses.field(repr=False, compare=False)

    @property
    def is_self_issued(self) -> bool:
        """Whether subject and issuer are the same, as in every root."""
        return self.subject.encoded == self.issuer.encoded


@dataclasses.dataclass(frozen=True)
class Timestamp:
    """A timestamp: when an authority saw the signature. `time` counts only if `verdict` is valid."""

    kind: TimestampKind
    verdict: Verdict
    reason: str
    time: datetime.datetime | None
    digest: str
    authority: Certificate | None
    # From the authority up to the root that was found; empty if no chain was.
    chain: tuple[Certificate, ...] = ()


@dataclasses.dataclass(frozen=True)
class Signature:
    """One signature of a file. `reason` says what was found, and is written to follow the verdict."""

    verdict: Verdict
    reason: str
    # The digests of the file ("sha256") and of the signer's own signature.
    file_digest: str
    digest: str
    is_nested: bool
    signer: Certificate | None
    # From the signer up to the last certificate that was found; with the root, if the chain is trusted.
    chain: tuple[Certificate, ...]
    # The one that counts, or the first of those that are not valid.
    timestamp: Timestamp | None

    @property
    def root(self) -> Certificate | None:
        """The root at the end of the chain, trusted or not. None: the chain has no end."""
        is_complete = self.verdict not in (Verdict.ALTERED, Verdict.UNTRUSTED)
        return self.chain[-1] if self.chain and (is_complete or self.chain[-1].is_self_issued) else None

    @property
    def timestamp_root(self) -> Certificate | None:
        """The root of the timestamp's chain. None: there is no valid timestamp."""
        timestamp = self.timestamp
        return timestamp.chain[-1] if timestamp and timestamp.verdict is Verdict.VALID else None


@dataclasses.dataclass(frozen=True)
class Verification:
    """What was found in one file."""

    name: str
    kind: FileKind
    verdict: Verdict
    reason: str
    # The first signature, then the nested ones. For a file that a catalogue lists: those of the catalogue.
    signatures: tuple[Signature, ...]
    # The signature on which the verdict rests.
    signature: Signature | None
    # The name of the catalogue that signs for a file which has no signature of its own.
    catalogue: str | None = None

    @property
    def first(self) -> Signature | None:
        """The signature that Get-AuthenticodeSignature shows."""
        return next(iter(self.signatures), None)

    @property
    def needs_nested(self) -> bool:
        """Whether the verdict rests on a nested signature, which Get-AuthenticodeSignature does not show."""
        return self.signature is not None and self.signature.is_nested


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """A security catalogue: the digests of the files for which it signs, and the verdict on itself.

    The digests have their algorithms beside them. Each is that of a file's form (Authenticode) or that of its bytes.
    """

    name: str
    verification: Verification
    members: frozenset[tuple[str, bytes]] = dataclasses.field(repr=False)


# The source of the roots that the operator gives.
OWN_ROOTS: Final = "own roots"


@dataclasses.dataclass(frozen=True)
class TrustedRoot:
    """A trusted root, and for what. Without dates and usages it is trusted for everything."""

    certificate: Certificate
    # Object identifiers of usages. None: all.
    usages: frozenset[str] | None = None
    # Not trusted since then, for these usages (None: for all). Signatures with an older timestamp stay valid.
    disabled_since: datetime.datetime | None = None
    disabled_usages: frozenset[str] | None = None
    # Certificates that were issued later are not trusted, for these usages (None: for all).
    issued_before: datetime.datetime | None = None
    issued_before_usages: frozenset[str] | None = None
    # Where it comes from, for people.
    source: str = ""


@dataclasses.dataclass(frozen=True)
class RevocationList:
    """A CRL. Its signature is verified when it is used, with the key of the issuer in the chain."""

    der: bytes = dataclasses.field(repr=False)
    # The encoded name of the CA.
    issuer: bytes = dataclasses.field(repr=False)
    this_update: datetime.datetime
    next_update: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class SignerStrength:
    """How strong the certificates of signers must be. Those of CAs and of timestamps are older, and not compared."""

    least_rsa_bits: int | None = None
    sha1_certificates: bool = True
    """Whether the issuer may have signed the certificate with SHA-1."""

    def find_fault(self, signer: Certificate) -> str:
        """Why a certificate is too weak; empty if it is not."""
        kind, _, bits = signer.key.partition(" ")
        if self.least_rsa_bits and kind == "RSA" and int(bits) < self.least_rsa_bits:
            return f'"{signer.subject.short}" has an RSA key of {bits} bits, but {self.least_rsa_bits} are required'
        if not self.sha1_certificates and signer.digest in ("sha1", "md5", "md2"):
            return f'the certificate of "{signer.subject.short}" is signed with SHA-1 or weaker'
        return ""


@dataclasses.dataclass(frozen=True)
class Trust:
    """What is trusted, and when: everything that a verdict depends on besides the file. `load_trust` makes it."""

    now: datetime.datetime
    roots: tuple[TrustedRoot, ...] = dataclasses.field(repr=False)
    revocation_lists: tuple[RevocationList, ...] = dataclasses.field(default=(), repr=False)
    # Where the roots come from, with the date of the list, for people.
    source: str = ""
    strength: SignerStrength = dataclasses.field(default_factory=SignerStrength)

    @property
    def has_own_roots(self) -> bool:
        """Whether the operator has given roots."""
        return any(root.source == OWN_ROOTS for root in self.roots)

    @functools.cached_property
    def roots_by_certificate(self) -> Mapping[Certificate, TrustedRoot]:
        return {root.certificate: root for root in self.roots}

    @functools.cached_property
    def known_issuers(self) -> Mapping[bytes, tuple[Certificate, ...]]:
        """The roots by their encoded subjects."""
        issuers: dict[bytes, tuple[Certificate, ...]] = {}
        for certificate in (root.certificate for root in self.roots):
            key = certificate.subject.encoded
            issuers[key] = (*issuers.get(key, ()), certificate)
        return issuers
