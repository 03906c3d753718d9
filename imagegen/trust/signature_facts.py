"""Compares what a lock says about the signatures of an artifact with what its bytes say. Pure.

The facts of a lock go into the plan, the manifest and the check on the machine, and a lock is not trusted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.base.errors import VerificationError
from imagegen.base.lines import counted
from imagegen.trust.signature_request import place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from imagegen.fetch.lock import LockedArtifact, LockedIssuer, LockedSignature
    from imagegen.trust.signatures import CheckedSignatures

_NONE: Final = "none"


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


def _differing_facts(known: LockedSignature, true: LockedSignature) -> Iterator[str]:
    before, now = _facts(known), _facts(true)
    return (f"{key} is {before[key]} in the lock, but {now[key]} in the file" for key in now if before[key] != now[key])


def _facts(signature: LockedSignature) -> dict[str, str]:
    return {
        "signer": signature.signer,
        "thumbprint": signature.thumbprint,
        "sha1": signature.sha1 or _NONE,
        "by": signature.by,
        "issuers": " and ".join(map(_certificate, signature.issuers)) or _NONE,
        "root": _certificate(signature.root),
        "timestamp": signature.timestamp or _NONE,
        "timestamp_root": _certificate(signature.timestamp_root) if signature.timestamp_root else _NONE,
    }


def _certificate(issuer: LockedIssuer) -> str:
    return f"{issuer.subject} (sha256 {issuer.thumbprint})"


def _status(signature: LockedSignature | None, member: str, not_programs: Collection[str]) -> str:
    if signature:
        return f"is signed by {signature.signer}"
    return "is no program" if member in not_programs else "has no signature"
