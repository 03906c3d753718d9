"""What must be signed in an artifact, and by whom, and whether the facts of a lock satisfy that. Pure.

`signatures` beside it checks the bytes themselves.
"""

from __future__ import annotations

import binascii
import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from imagegen.authenticode.model import Name, SignerStrength
from imagegen.authenticode.signer import SignerRule, nearest, parse_name
from imagegen.base.errors import ConfigError, VerificationError
from imagegen.base.files import read_file
from imagegen.base.lines import counted
from imagegen.trust.crl_use import CrlUse
from imagegen.trust.found_signature import find_rule

if TYPE_CHECKING:
    from imagegen.authenticode.model import Trust
    from imagegen.authenticode.signer import KnownCertificate
    from imagegen.fetch.lock import LockedArtifact, LockedSignature

# A PEM file whose roots replace all others on this machine, as SSL_CERT_FILE does for servers. What the nodes trust
# stays as it is.
ROOTS_VARIABLE: Final = "IMAGEGEN_SIGNING_ROOTS"
_LARGEST_ROOTS: Final = 16 * 2**20
_SHA1_DIGITS: Final = 40
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


class UsedFiles(Protocol):
    """The files of an artifact that the image gets."""

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        """Those of an archive's members, each with its names on the machine. None: it is no archive. Then it is itself
        WHOLE_FILE."""


@dataclasses.dataclass(frozen=True)
class SignatureRequest:
    """What must be signed in an artifact, and by whom. Without `signers`, everybody with a trusted root may sign."""

    artifact: str
    used: UsedFiles
    signers: tuple[SignerRule, ...]
    key: str
    """The config's key that requires the signature."""
    override: str
    """The config's key that replaces the artifact, for hints."""
    published: str = ""
    """What is known of the signatures of the published artifact, for hints."""
    signed_by: str = ""
    """Who is known to sign the published artifact, for hints."""
    with_strength: bool = False
    """Whether the config requires more of the certificates of signers than a lock has of them."""

    @property
    def allowed(self) -> str:
        """Who may sign, in words."""
        return " or ".join(rule.text for rule in self.signers) or "a signature that leads to a trusted root"


@dataclasses.dataclass(frozen=True)
class TrustSources:
    """Where the roots and the CRLs of a config come from. Without roots, those of Microsoft's programme count."""

    roots: bytes | None = None
    crl_files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """By their names in the config."""
    crl_urls: tuple[str, ...] = ()
    strength: SignerStrength = dataclasses.field(default_factory=SignerStrength)

    @property
    def root_thumbprints(self) -> frozenset[str] | None:
        """The sha256 of the config's roots. None: it has none, and those of Microsoft's programme count."""
        if self.roots is None:
            return None
        blocks = _PEM.findall(self.roots)
        # What is not in PEM is one certificate in DER.
        try:
            certificates = [binascii.a2b_base64(block) for block in blocks] or [self.roots]
        except binascii.Error:
            # Whoever reads the certificates rejects it.
            certificates = []
        return frozenset(hashlib.sha256(one).hexdigest() for one in certificates)


def with_roots_of(environ: Mapping[str, str], sources: TrustSources, warn: Callable[[str], object]) -> TrustSources:
    """The sources with the roots that the environment names, if it does."""
    name = environ.get(ROOTS_VARIABLE)
    if not name:
        return sources
    warn(f"signatures are judged by the roots in {name}, which {ROOTS_VARIABLE} names, and by no others")
    try:
        return dataclasses.replace(sources, roots=read_file(Path(name), limit=_LARGEST_ROOTS))
    except FileNotFoundError:
        raise ConfigError(
            f"{ROOTS_VARIABLE} names {name}, which does not exist", hint="correct it or unset it"
        ) from None


@dataclasses.dataclass(frozen=True)
class SignatureProblem:
    """What is wrong with the signature of one file, in one line, and what helps."""

    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class LockedCertificate:
    """What a lock says about a certificate. `sha1` is empty if the lock does not have it."""

    subject: Name
    sha256: str
    sha1: str = ""

    @property
    def issuer(self) -> Name:
        """A lock names the issuers themselves."""
        return Name(())


class SignatureError(VerificationError):
    """The signatures of some files are not as the config requires. A hint that several have stands once."""

    def __init__(self, found: Iterable[SignatureProblem]) -> None:
        self.found = tuple(found)
        by_hint: dict[str, list[str]] = {}
        for problem in self.found:
            by_hint.setdefault(problem.hint, []).append(problem.message)
        super().__init__(
            f"the signature of {counted(len(self.found), 'file')} is not as the config requires",
            details=[line for hint, messages in by_hint.items() for line in (*messages, f"  hint: {hint}")],
        )


@dataclasses.dataclass(frozen=True)
class SignaturePolicy:
    """What must be signed in the artifacts of a config, by their names, and what is trusted."""

    requests: Mapping[str, SignatureRequest]
    roots: frozenset[str] | None
    """The sha256 of the only trusted roots. None: those of Microsoft's programme."""
    load_trust: Callable[[], Trust]
    """Reads the roots, and downloads CRLs."""
    crls: CrlUse = dataclasses.field(default_factory=CrlUse)
    """Which CRLs are about the signatures that were judged."""

    def knows(self, name: str, entry: LockedArtifact) -> bool:
        """Whether what the lock says of an artifact is enough to judge it. Then `reject_locked` does."""
        request = self.requests.get(name)
        return request is None or (judge_facts(request, entry) is not None and self._has_trusted_roots(entry))

    def reject_locked(self, entries: Mapping[str, LockedArtifact]) -> None:
        """Reject entries whose signers may not sign."""
        reject_wrong_signers(self.requests, entries)

    def _has_trusted_roots(self, entry: LockedArtifact) -> bool:
        found = {signature.root.thumbprint for signature in (entry.signed or {}).values()}
        return self.roots is None or found <= self.roots


def reject_wrong_signers(requests: Mapping[str, SignatureRequest], entries: Mapping[str, LockedArtifact]) -> None:
    """Reject the entries of a lock whose signers, as it names them, may not sign."""
    both = sorted(requests.keys() & entries.keys())
    if problems := [problem for name in both for problem in judge_facts(requests[name], entries[name]) or ()]:
        raise SignatureError(problems)


def place(artifact: str, member: str) -> str:
    """An artifact or one of its files, for messages."""
    return f"{artifact}: {member}" if member else artifact


def wrong_signer(
    request: SignatureRequest, member: str, signer: KnownCertificate, chain: Sequence[KnownCertificate]
) -> SignatureProblem:
    """The problem of a file that somebody else signed."""
    in_yaml = "'" + find_rule(signer, chain).replace("'", "''") + "'"
    # The signer of an override is one, those of the section are a list.
    advice = f"set {request.key} to {in_yaml}" if request.key.endswith(".signer") else f"add {in_yaml} to {request.key}"
    return SignatureProblem(
        f"{place(request.artifact, member)} is signed by {signer.subject}, but {request.key} requires "
        f"{request.allowed}: {nearest(request.signers, signer, chain)}",
        f"if this signer may sign, {advice}; if not, set {request.override} to another file",
    )


def is_covered(request: SignatureRequest, entry: LockedArtifact) -> bool:
    """Whether the lock says of every file that the image gets who signed it, or that it is no program. An older lock
    has timestamps without their roots."""
    signed = (entry.signed or {}).items()
    known = {*entry.not_programs, *(file for file, one in signed if not one.timestamp or one.timestamp_root)}
    return all(member in known for member in request.used.select(entry.members))


def judge_facts(request: SignatureRequest, entry: LockedArtifact) -> list[SignatureProblem] | None:
    """The files whose signers, as the lock names them, may not sign. None: only the bytes can tell."""
    if request.with_strength or not is_covered(request, entry):
        return None
    problems = []
    for member, signature in _signatures(request, entry):
        try:
            signer, issuers = _certificates(signature)
        except ValueError:
            # A lock is not trusted, and a certificate may have no name.
            return None
        if not request.signers or any(rule.matches(signer, issuers) for rule in request.signers):
            continue
        if _needs_more(request.signers, signer):
            return None
        problems.append(wrong_signer(request, member, signer, issuers))
    return problems


def _signatures(request: SignatureRequest, entry: LockedArtifact) -> Iterator[tuple[str, LockedSignature]]:
    for member in request.used.select(entry.members):
        if signature := (entry.signed or {}).get(member):
            yield member, signature


def _certificates(signature: LockedSignature) -> tuple[LockedCertificate, tuple[LockedCertificate, ...]]:
    """The signer, and the certificates above it."""
    signer = LockedCertificate(_name(signature.signer), signature.thumbprint.upper(), (signature.sha1 or "").upper())
    return signer, issuers_of(signature)


def issuers_of(signature: LockedSignature) -> tuple[LockedCertificate, ...]:
    """The certificates above the signer's. A ValueError: one has a name that cannot be read."""
    issuers = (*signature.issuers, signature.root)
    return tuple(LockedCertificate(_name(one.subject), one.thumbprint.upper()) for one in issuers)


def _name(text: str) -> Name:
    return Name(parse_name(text))


def _needs_more(rules: Iterable[SignerRule], signer: LockedCertificate) -> bool:
    """Whether a rule names a certificate by its SHA-1, and the lock has only its SHA-256."""
    thumbprints = [
        pattern.thumbprint
        for rule in rules
        for condition in rule.conditions
        for pattern in (condition.issuer, condition.signer if not signer.sha1 else None)
        if pattern
    ]
    return any(len(thumbprint) == _SHA1_DIGITS for thumbprint in thumbprints)
