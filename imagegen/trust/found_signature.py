"""Describes the verdict on a signature in texts, and finds the rule by which a config allows its signer. Pure."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.model import Verdict
from imagegen.authenticode.signer import SignerRule, parse_signer, presets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.authenticode.model import Name, Verification
    from imagegen.authenticode.signer import KnownCertificate

# What tells an organisation apart. Places and serial numbers change with each certificate.
_TELLING: Final = ("CN", "O")


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
