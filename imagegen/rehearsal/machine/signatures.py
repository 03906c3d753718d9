"""Authenticode on the machine: what Get-AuthenticodeSignature shows of a file's real bytes, and the engine's check.

The first signature of a file counts: Windows PowerShell shows no other. The roots are those of the machine's own store.
Nothing is revoked, because the machine reaches no list.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.certificates import read_certificate
from imagegen.authenticode.model import Trust, TrustedRoot, Verdict
from imagegen.authenticode.trust import read_public_roots
from imagegen.authenticode.verify import verify
from imagegen.rehearsal.machine.certificates import DISALLOWED, ROOT
from imagegen.rehearsal.machine.stop import Exit, StopError

if TYPE_CHECKING:
    from imagegen.authenticode import model
    from imagegen.rehearsal.machine.kinds.kind import Supplies
    from imagegen.rehearsal.machine.plan import Signature
    from imagegen.rehearsal.machine.windows import Machine

VALID: Final = "Valid"
NOT_SIGNED: Final = "NotSigned"
_MISMATCH: Final = "HashMismatch"
_DISTRUSTED: Final = "NotTrusted"
# Whatever else is wrong has no status of its own.
_OTHER: Final = "UnknownError"
_STATUS: Final = {
    Verdict.VALID: VALID,
    # Windows itself accepts SHA-1.
    Verdict.WEAK_DIGEST: VALID,
    Verdict.UNSIGNED: NOT_SIGNED,
    Verdict.ALTERED: _MISMATCH,
}


@dataclasses.dataclass(frozen=True)
class Shown:
    """What Get-AuthenticodeSignature shows."""

    status: str
    message: str
    signer: model.Certificate | None = None


def show_signature(machine: Machine, data: bytes, name: str) -> Shown:
    """The signature of a file. Windows knows a script by the extension of its name."""
    found = verify(io.BytesIO(data), name, Trust(machine.date, _roots(machine)))
    if not found.signatures:
        return Shown(_STATUS.get(found.verdict, _OTHER), found.reason)
    first = found.signatures[0]
    distrusted = machine.certificates.thumbprints(DISALLOWED)
    if any(one.sha1 in distrusted for one in first.chain):
        return Shown(_DISTRUSTED, "a certificate is in the store Disallowed", first.signer)
    lacks_root = first.verdict in (Verdict.UNTRUSTED, Verdict.BAD_TIMESTAMP)
    if lacks_root and machine.fetches_roots and _fetch_roots(machine, first):
        return show_signature(machine, data, name)
    return Shown(_STATUS.get(first.verdict, _OTHER), first.reason, first.signer)


def check_signature(machine: Machine, data: bytes, name: str, supplies: Supplies) -> None:
    """The engine's check of a file before it comes into its place. What it found is kept for the report."""
    sha256 = hashlib.sha256(data).hexdigest()
    if supplies.signatures and sha256 not in supplies.signatures:
        reason = "the plan requires signatures, and knows no file with these bytes"
        raise StopError(Exit.WRONG_BYTES, f"{name} has the sha256 {sha256}: {reason}")
    wanted = supplies.signatures.get(sha256)
    if wanted is None or wanted.hidden is not None:
        return
    if fault := _find_fault(machine, show_signature(machine, data, name), wanted):
        raise StopError(Exit.WRONG_BYTES, f"{name} {fault}")
    supplies.checked.add(sha256)


def _find_fault(machine: Machine, found: Shown, wanted: Signature) -> str:
    subject = found.signer.subject if found.signer else ""
    if found.status == VALID:
        same = found.signer is not None and found.signer.sha256.lower() == wanted.thumbprint
        return "" if same else f"is signed by {subject}, not with the certificate of {wanted.signer} in the plan"
    if found.status == NOT_SIGNED:
        return f"is not signed, and the plan has a signature of {wanted.signer}"
    if found.status == _MISMATCH:
        return f"was changed after {wanted.signer} signed it"
    if found.status == _DISTRUSTED:
        return f"is signed by {subject}, which this Windows distrusts"
    known = {root.certificate.sha256.lower() for root in _roots(machine)}
    for how, root, thumbprint in (
        ("signed", wanted.root, wanted.root_thumbprint),
        ("timestamped", wanted.timestamp_root, wanted.timestamp_root_thumbprint),
    ):
        if root is not None and thumbprint not in known:
            return (
                f"is {how} below {root}, a root that this machine neither has nor could fetch: save the certificate"
                f" with the sha256 {thumbprint} beside the config, and add windows.trusted_roots: [FILE]"
            )
    return f"has a signature of {subject} that Windows does not accept ({found.status}): {found.message}"


def _roots(machine: Machine) -> tuple[TrustedRoot, ...]:
    """The roots in the store. Of a stock root the model has only the thumbprint: its bytes are in Microsoft's list."""
    public = {one.certificate.sha1: one.certificate for one in read_public_roots()[0]}
    found = [machine.certificates.find(one, ROOT) for one in sorted(machine.certificates.thumbprints(ROOT))]
    known = [read_certificate(one.data) if one.data else public.get(one.thumbprint) for one in found if one]
    return tuple(TrustedRoot(one) for one in known if one)


def _fetch_roots(machine: Machine, signature: model.Signature) -> bool:
    """Windows fetches the roots of chains that are on Microsoft's list, and keeps them. Whether there are new ones."""
    chain = (*signature.chain, *(signature.timestamp.chain if signature.timestamp else ()))
    issuers, known = {one.issuer.encoded for one in chain}, machine.certificates.thumbprints(ROOT)
    listed = [one.certificate for one in read_public_roots()[0] if one.certificate.subject.encoded in issuers]
    fetched = [one for one in listed if one.sha1 not in known]
    for one in fetched:
        machine.certificates.add_root(one.der, one.sha1)
    return bool(fetched)
