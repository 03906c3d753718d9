"""The record of a signature, as a lock keeps it: who may have made it, and whether the file still says the same. Pure.

`judge` makes the records of the bytes. A lock is not trusted: its records decide what can be decided early, and a build
refuses those that differ from the bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.model import Name
from imagegen.authenticode.signer import nearest, parse_name
from imagegen.base.errors import VerificationError
from imagegen.base.lines import counted
from imagegen.fetch.lock import LockedIssuer, LockedSignature
from imagegen.plan.model import PlannedSignature
from imagegen.trust.messages import find_rule

if TYPE_CHECKING:
    from imagegen.authenticode.signer import KnownCertificate, SignerRule
    from imagegen.fetch.lock import LockedArtifact
    from imagegen.trust.policy import SignatureRequest

_SHA1_DIGITS: Final = 40


@dataclasses.dataclass(frozen=True)
class SignatureProblem:
    """What is wrong with the signature of one file, in one line, and what helps."""

    message: str
    hint: str


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
class RecordedCertificate:
    """What a record says about a certificate. `sha1` is empty if it does not have it."""

    subject: Name
    sha256: str
    sha1: str = ""

    @property
    def issuer(self) -> Name:
        """A record names the issuers themselves."""
        return Name(())


@dataclasses.dataclass(frozen=True)
class CheckedSignatures:
    """What was found in one artifact: the signatures that may be there, the files that need none, and the problems."""

    signed: dict[str, LockedSignature]
    not_programs: list[str]
    problems: tuple[SignatureProblem, ...]


def may_sign(rules: Sequence[SignerRule], signer: KnownCertificate, chain: Sequence[KnownCertificate]) -> bool:
    """Whether a config with these rules allows this signer. Without a rule, every valid signature counts."""
    return not rules or any(rule.matches(signer, chain) for rule in rules)


def reject_wrong_signers(requests: Mapping[str, SignatureRequest], entries: Mapping[str, LockedArtifact]) -> None:
    """Reject the entries of a lock whose signers, as it names them, may not sign."""
    both = sorted(requests.keys() & entries.keys())
    if problems := [problem for name in both for problem in judge_records(requests[name], entries[name]) or ()]:
        raise SignatureError(problems)


def judge_records(request: SignatureRequest, entry: LockedArtifact) -> list[SignatureProblem] | None:
    """The files whose signers, as the lock names them, may not sign. None: only the bytes can tell."""
    if request.with_strength or not is_covered(request, entry):
        return None
    problems = []
    for member in request.used.select(entry.members):
        if not (signature := (entry.signed or {}).get(member)):
            continue
        try:
            subject, issuers = Name(parse_name(signature.signer)), issuers_of(signature)
        except ValueError:
            # A lock is not trusted, and a certificate may have no name.
            return None
        signer = RecordedCertificate(subject, signature.thumbprint.upper(), (signature.sha1 or "").upper())
        if may_sign(request.signers, signer, issuers):
            continue
        if _needs_more(request.signers, signer):
            return None
        problems.append(wrong_signer(request, member, signer, issuers))
    return problems


def issuers_of(signature: LockedSignature) -> tuple[RecordedCertificate, ...]:
    """The certificates above the signer's. A ValueError: one has a name that cannot be read."""
    issuers = (*signature.issuers, signature.root)
    return tuple(RecordedCertificate(Name(parse_name(one.subject)), one.thumbprint.upper()) for one in issuers)


def _needs_more(rules: Iterable[SignerRule], signer: RecordedCertificate) -> bool:
    """Whether a rule names a certificate by its SHA-1, and the lock has only its SHA-256."""
    conditions = [condition for rule in rules for condition in rule.conditions]
    patterns = [one.issuer for one in conditions] + [one.signer for one in conditions if not signer.sha1]
    return any(pattern and len(pattern.thumbprint) == _SHA1_DIGITS for pattern in patterns)


def is_covered(request: SignatureRequest, entry: LockedArtifact) -> bool:
    """Whether the lock says of every file that the image gets who signed it, or that it is no program. An older lock
    has timestamps without their roots."""
    signed = (entry.signed or {}).items()
    known = {*entry.not_programs, *(file for file, one in signed if not one.timestamp or one.timestamp_root)}
    return all(member in known for member in request.used.select(entry.members))


def place(artifact: str, member: str) -> str:
    """An artifact or one of its files, for messages."""
    return f"{artifact}: {member}" if member else artifact


def wrong_signer(
    request: SignatureRequest, member: str, signer: KnownCertificate, chain: Sequence[KnownCertificate]
) -> SignatureProblem:
    """The problem of a file that somebody else signed."""
    in_yaml = "'" + find_rule(signer, chain).replace("'", "''") + "'"
    advice = f"set {request.key} to {in_yaml}" if request.has_own_signer else f"add {in_yaml} to {request.key}"
    return SignatureProblem(
        f"{place(request.artifact, member)} is signed by {signer.subject}, but {request.key} requires "
        f"{request.allowed}: {nearest(request.signers, signer, chain)}",
        f"if this signer may sign, {advice}; if not, set {request.override} to another file",
    )


def planned_signature(found: LockedSignature) -> PlannedSignature:
    """The signature that the machine must find, if Windows shows it."""
    return PlannedSignature(
        signer=found.signer,
        thumbprint=found.thumbprint,
        root=found.root.subject,
        root_thumbprint=found.root.thumbprint,
        timestamp_root=found.timestamp_root.subject if found.timestamp_root else None,
        timestamp_root_thumbprint=found.timestamp_root.thumbprint if found.timestamp_root else None,
        hidden=None if found.by == "own" else found.by,
    )


def find_differences(artifact: str, locked: LockedArtifact, found: CheckedSignatures) -> Iterator[str]:
    """Each file of which the lock does not say what its bytes say. Only what was checked is compared: a lock may be
    for more targets."""
    for member in sorted({*found.signed, *found.not_programs}):
        known, true = (locked.signed or {}).get(member), found.signed.get(member)
        if known and true:
            says = "; ".join(_differing_facts(known, true))
        elif known or true or member not in locked.not_programs:
            before, now = _status(known, member, locked.not_programs), _status(true, member, found.not_programs)
            says = f"the lock says that it {before}, but the file {now}"
        else:
            continue
        if says:
            yield f"{place(artifact, member)}: {says}"


def _differing_facts(known: LockedSignature, true: LockedSignature) -> Iterator[str]:
    # The certificate itself is known by its thumbprint.
    for key in LockedSignature.model_fields:
        before, now = getattr(known, key), getattr(true, key)
        if key != "certificate" and before != now:
            yield f"{key} is {_shown(before)} in the lock, but {_shown(now)} in the file"


def _shown(fact: object) -> str:
    if isinstance(fact, LockedIssuer):
        return f"{fact.subject} (sha256 {fact.thumbprint})"
    return " and ".join(map(_shown, fact)) if fact and isinstance(fact, list) else str(fact or "none")


def _status(signature: LockedSignature | None, member: str, not_programs: Collection[str]) -> str:
    if signature:
        return f"is signed by {signature.signer}"
    return "is no program" if member in not_programs else "has no signature"


def reject_differences(differences: Mapping[str, Collection[str]], lock: str, upgrade: str) -> None:
    """Reject a lock with such files, by the names of their artifacts. `upgrade` is the command that looks entries up
    again."""
    wrong = sorted(name for name, lines in differences.items() if lines)
    if not wrong:
        return
    lines = [line for name in wrong for line in differences[name]]
    raise VerificationError(
        f"{lock} is wrong about the signature of {counted(len(lines), 'file')}",
        details=lines,
        hint=f"find out who changed it; `{upgrade} {' '.join(wrong)}` reads the signatures from the files again",
    )
