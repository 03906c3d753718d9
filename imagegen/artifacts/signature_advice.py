"""What helps against the verdict on a signature, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.authenticode.model import SEVERITY, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.authenticode.model import Certificate, Signature, Trust, Verification

_ADVICE: Final[Mapping[Verdict, str]] = {
    Verdict.ALTERED: "find out what changed the file after it was signed, or {other}",
    Verdict.REVOKED: "{other} with a newer signature",
    Verdict.WRONG_USAGE: "sign it with a certificate for code signing",
    Verdict.BAD_TIMESTAMP: "sign it again, with the timestamp of a public authority",
    Verdict.EXPIRED: "sign it again with a timestamp: then the signature outlives the certificate",
    Verdict.WEAK_DIGEST: "sign it again with SHA-256",
}
_WITH_CAS: Final = "sign it again with the certificates of its CAs (osslsigncode: -ac FILE, signtool: /ac FILE)"


def advise(found: Verification, trust: Trust, *, roots: str, other: str) -> str:
    """What helps; empty for a valid file. `roots` is the key or the option with the roots to trust, and `other` says
    how another file is taken."""
    signature, verdict = _deciding(found), found.verdict
    if signature is not None:
        verdict = signature.verdict
        if verdict is Verdict.UNTRUSTED:
            return _complete(signature.chain, trust, roots) or f"{other}: this certificate cannot be used"
        if verdict is Verdict.BAD_TIMESTAMP and signature.timestamp and _ends_alone(signature.timestamp.chain, trust):
            return f"{_add_root(trust, roots)}; or {_ADVICE[verdict].format(other=other)}"
        if verdict is Verdict.EXPIRED and any(trust.now < one.not_before for one in signature.chain):
            return "wait until then, or correct the clock of this machine"
    return _ADVICE.get(verdict, "").format(other=other)


def _deciding(found: Verification) -> Signature | None:
    """The signature to mend. Of a weak one for old Windows with others nested in it, that is the best of those."""
    if found.verdict is Verdict.WEAK_DIGEST and len(found.signatures) > 1 and not found.catalogue:
        return max(found.signatures[1:], key=lambda nested: SEVERITY.index(nested.verdict))
    return found.signature


def _complete(chain: Sequence[Certificate], trust: Trust, roots: str) -> str:
    """What completes a chain. Empty: it ends at a trusted root, or nothing does."""
    if not chain or chain[-1] in trust.roots_by_certificate:
        return ""
    if _ends_alone(chain, trust):
        return _add_root(trust, roots, "root" if len(chain) > 1 else "certificate")
    if any(one.subject.encoded == chain[-1].issuer.encoded for one in (root.certificate for root in trust.roots)):
        # A known root has this name, but another key.
        return ""
    # Nothing tells a missing root from a missing CA. A root hardly ever signs for a signer itself.
    if len(chain) == 1:
        return f"{_WITH_CAS}; if the missing one is a root: {_add_root(trust, roots)}"
    return f"{_add_root(trust, roots)}; if the missing one is no root: {_WITH_CAS}"


def _ends_alone(chain: Sequence[Certificate], trust: Trust) -> bool:
    """Whether a chain ends at a self-signed certificate that is not trusted."""
    return bool(chain) and chain[-1].is_self_issued and chain[-1] not in trust.roots_by_certificate


def _add_root(trust: Trust, roots: str, what: str = "root") -> str:
    if trust.has_own_roots:
        return f"if you trust this {what}, add it to the PEM file of {roots}"
    return (
        f"if you trust this {what}, write it into a PEM file for {roots}. The file replaces Microsoft's list, so add "
        "the roots of your vendors"
    )
