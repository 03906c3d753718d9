"""Authenticode on the machine: what Get-AuthenticodeSignature shows of a file's real bytes.

The first signature of a file counts: Windows PowerShell shows no other. The roots are those of the machine's own store.
Nothing is revoked, because the machine reaches no list.
"""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.certificates import read_certificate
from imagegen.authenticode.model import Trust, TrustedRoot, Verdict
from imagegen.authenticode.root_list import read_public_roots
from imagegen.authenticode.verify import verify
from imagegen.rehearsal.machine.certificates import DISALLOWED, ROOT

if TYPE_CHECKING:
    from imagegen.authenticode import model
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
