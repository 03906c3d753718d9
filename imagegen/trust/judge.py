"""Judges the signature of a script by the config: who may sign, and to which roots a signature may lead. Reads
nothing but the list of public roots."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.model import Verdict
from imagegen.authenticode.root_list import read_public_roots
from imagegen.authenticode.signer import nearest, parse_signer
from imagegen.authenticode.trust import load_trust
from imagegen.authenticode.verify import verify
from imagegen.settle.spec import ROOT
from imagegen.trust.copies import Judged
from imagegen.trust.policy import trust_sources
from imagegen.trust.signature_advice import add_to_roots, advise

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from imagegen.authenticode.model import Signature, Verification
    from imagegen.authenticode.signer import SignerRule
    from imagegen.settle.spec import Spec
    from imagegen.trust.copies import Judge
    from imagegen.trust.crl_use import CrlUse


_ROOTS: Final = "artifacts.signatures.roots"


def make_judge(spec: Spec, now: datetime.datetime, crls: CrlUse) -> Judge:
    """The judge of a config's signed scripts. Unless the config lists the only roots, those of the machine count beside
    the public ones, because it trusts them. The CRLs in files count, and those that were downloaded for this run: a
    plan downloads nothing."""
    policy, sources = spec.config.artifacts.signatures, trust_sources(spec)
    rules = [parse_signer(one if isinstance(one, str) else one.given()) for one in (policy.signers if policy else ())]
    roots = [one.thumbprint for one in spec.facts.certificates if one.store == ROOT]
    files = [file.data for key, file in spec.own_files.items() if key.startswith("facts.certificates")]
    crls.add(sources.crl_files)
    trust = load_trust(
        now=now,
        roots=files if sources.roots is None else [sources.roots],
        crls=crls.data.values(),
        public_roots=True if sources.roots is None else None,
        strength=sources.strength,
    )
    add_root = add_to_roots(trust, _ROOTS) if sources.roots is not None else "add it to windows.trusted_roots"

    def judge(name: str, data: bytes) -> Judged:
        found = verify(io.BytesIO(data), name, trust)
        crls.note(signature.chain for signature in found.signatures)
        if found.verdict is Verdict.VALID and found.signature is not None:
            return _judge_signer(found, found.signature, rules, roots)
        advice = advise(found, trust, add_root=add_root, other="sign it again")
        return Judged(f"has an invalid signature: {found.verdict}: {found.reason}; {advice}")

    return judge


def _judge_signer(
    found: Verification, signature: Signature, rules: Sequence[SignerRule], roots: Sequence[str]
) -> Judged:
    if found.needs_nested:
        return Judged("has a first signature with a weak digest, and PowerShell sees no other")
    if fault := _signer_fault(signature, rules) or _root_fault(signature, roots):
        return Judged(f"is signed by {fault}")
    return Judged("", signature)


def _signer_fault(signature: Signature, rules: Sequence[SignerRule]) -> str:
    signer = signature.signer
    if signer is None or not rules or any(rule.matches(signer, signature.chain) for rule in rules):
        return ""
    return f"{signer.subject}, who is not an allowed signer: {nearest(rules, signer, signature.chain)}"


def _root_fault(signature: Signature, roots: Sequence[str]) -> str:
    """A private root is on the machine only if the config puts it there. Windows fetches a public one."""
    root = signature.root
    public, _ = read_public_roots()
    if root is None or root.sha1 in roots or any(root == one.certificate for one in public):
        return ""
    signer = signature.chain[0].subject
    return f"{signer} below {root.subject}, which the machine does not trust: add that root to windows.trusted_roots"
