"""Tells people of verdicts on signatures: what was found, what helps, and the rule that allows a signer. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.model import SEVERITY, Verdict
from imagegen.authenticode.signer import SignerRule, parse_signer, presets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.authenticode.model import Certificate, Name, Signature, Trust, Verification
    from imagegen.authenticode.signer import KnownCertificate

_ADVICE: Final[Mapping[Verdict, str]] = {
    Verdict.ALTERED: "find out what changed the file after it was signed, or {other}",
    Verdict.REVOKED: "{other} with a newer signature",
    Verdict.WRONG_USAGE: "sign it with a certificate for code signing",
    Verdict.BAD_TIMESTAMP: "sign it again, with the timestamp of a public authority",
    Verdict.EXPIRED: "sign it again with a timestamp: then the signature outlives the certificate",
    Verdict.WEAK_DIGEST: "sign it again with SHA-256",
    Verdict.WEAK_CERTIFICATE: "sign it again with a stronger certificate; artifacts.signatures has the requirement",
}
# What tells an organisation apart. Places and serial numbers change with each certificate.
_TELLING: Final = ("CN", "O")
_WITH_CAS: Final = "sign it again with the certificates of its CAs (osslsigncode: -ac FILE, signtool: /ac FILE)"


def add_to_roots(trust: Trust, roots: str) -> str:
    """How a root is added to those of a key or an option."""
    if trust.has_own_roots:
        return f"add it to the PEM file of {roots}"
    return f"write it into a PEM file for {roots}, with the roots of your vendors: the file replaces Microsoft's list"


def advise(found: Verification, trust: Trust, *, add_root: str, other: str) -> str:
    """What helps; empty for a valid file. `add_root` says how a root gets trusted (`add_to_roots`), and `other` how
    another file is taken."""
    signature, verdict = _deciding(found), found.verdict
    if signature is not None:
        verdict = signature.verdict
        if verdict is Verdict.UNTRUSTED:
            return _complete(signature.chain, trust, add_root) or f"{other}: this certificate cannot be used"
        if verdict is Verdict.BAD_TIMESTAMP and _has_untrusted_stamp(signature, trust):
            return f"if you trust the root of the timestamp, {add_root}; or {_ADVICE[verdict]}"
        if verdict is Verdict.EXPIRED and any(trust.now < one.not_before for one in signature.chain):
            return "wait until then, or correct the clock of this machine"
    return _ADVICE.get(verdict, "").format(other=other)


def _deciding(found: Verification) -> Signature | None:
    """The signature to mend. Of a weak one for old Windows with others nested in it, that is the best of those."""
    if found.verdict is Verdict.WEAK_DIGEST and len(found.signatures) > 1 and not found.catalogue:
        return max(found.signatures[1:], key=lambda nested: SEVERITY.index(nested.verdict))
    return found.signature


def _complete(chain: Sequence[Certificate], trust: Trust, add_root: str) -> str:
    """What completes a chain. Empty: it ends at a trusted root, or nothing does."""
    if not chain or chain[-1] in trust.roots_by_certificate:
        return ""
    if _ends_alone(chain, trust):
        return f"if you trust this {'root' if len(chain) > 1 else 'certificate'}, {add_root}"
    if any(one.subject.encoded == chain[-1].issuer.encoded for one in (root.certificate for root in trust.roots)):
        # A known root has this name, but another key.
        return ""
    # Nothing tells a missing root from a missing CA. A root hardly ever signs for a signer itself.
    if len(chain) == 1:
        return f"{_WITH_CAS}; if the missing one is a root that you trust, {add_root}"
    return f"if the missing one is a root that you trust, {add_root}; if it is another CA, {_WITH_CAS}"


def _has_untrusted_stamp(signature: Signature, trust: Trust) -> bool:
    stamp = signature.timestamp
    return stamp is not None and bool(stamp.chain) and stamp.chain[-1] not in trust.roots_by_certificate


def _ends_alone(chain: Sequence[Certificate], trust: Trust) -> bool:
    """Whether a chain ends at a self-signed certificate that is not trusted."""
    return bool(chain) and chain[-1].is_self_issued and chain[-1] not in trust.roots_by_certificate


@dataclasses.dataclass(frozen=True)
class FoundSignature:
    """What was found of the signature of a file. If it has none, only verdict and reason have a text."""

    verdict: str
    reason: str
    signer: str = ""
    issuer: str = ""
    thumbprint: str = ""
    """The SHA-1 of the signer's certificate, as Windows shows it."""
    thumbprint_sha256: str = ""
    chain: tuple[str, ...] = ()
    """The subjects from the signer to the last certificate that was found."""
    root: str = ""
    timestamp: str = ""
    stamped_by: str = ""
    catalogue: str = ""
    """The catalogue that signs for the file."""
    rule: str = ""
    """The signer as a config allows it, if the signature is valid."""
    advice: str = ""
    """What helps if it is not."""


def describe_signature(found: Verification, advice: str) -> FoundSignature:
    """The verdict, and the signature on which it rests. `advice` says what helps."""
    signature = found.signature
    if signature is None or signature.signer is None:
        return FoundSignature(found.verdict, found.reason, advice=advice)
    signer, stamp = signature.signer, signature.timestamp
    return FoundSignature(
        verdict=found.verdict,
        reason=found.reason,
        signer=str(signer.subject),
        issuer=str(signer.issuer),
        thumbprint=signer.sha1,
        thumbprint_sha256=signer.sha256,
        chain=tuple(str(certificate.subject) for certificate in signature.chain),
        root=str(signature.root.subject) if signature.root else "",
        timestamp=stamp.time.strftime("%Y-%m-%dT%H:%M:%SZ") if stamp and stamp.time else "",
        stamped_by=str(stamp.authority.subject) if stamp and stamp.authority else "",
        catalogue=found.catalogue or "",
        rule=find_rule(signer, signature.chain) if found.verdict is Verdict.VALID else "",
        advice=advice,
    )


def find_rule(signer: KnownCertificate, chain: Sequence[KnownCertificate]) -> str:
    """A rule that a config can have and that allows the signer: the name of a preset, or what tells the signer's
    organisation apart, or the thumbprint."""
    for name, preset in presets().items():
        if SignerRule(name, preset.conditions).matches(signer, chain):
            return name
    text = _telling_part(signer.subject)
    with contextlib.suppress(ValueError):
        if text.isprintable() and parse_signer(text).matches(signer, chain):
            return text
    return signer.sha256


def _telling_part(subject: Name) -> str:
    chosen = tuple(attribute for attribute in subject.attributes if attribute[0] in _TELLING)
    return str(dataclasses.replace(subject, attributes=chosen or subject.attributes))
