"""The execution policy of Windows PowerShell: which scripts it runs and which modules it imports.

A policy of the machine decides over the option of a command line. Without one, Windows Server runs every script that
was not downloaded, and the model knows no others. Windows' own modules always load (PowerShell/PowerShell#5511).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from imagegen.authenticode.certificates import read_certificate
from imagegen.authenticode.model import Trust, TrustedRoot, Verdict
from imagegen.authenticode.trust import read_public_roots
from imagegen.authenticode.verify import verify
from imagegen.rehearsal.machine.certificates import DISALLOWED, ROOT, TRUSTED_PUBLISHER
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.trust.block import is_script

if TYPE_CHECKING:
    from imagegen.authenticode import model
    from imagegen.rehearsal.machine.windows import Machine

POLICY: Final = r"HKLM:\SOFTWARE\Policies\Microsoft\Windows\PowerShell"
ALL_SIGNED: Final = "AllSigned"
REFUSED: Final = 1
"""The exit code of powershell.exe if it does not run its script."""


def check_script(machine: Machine, path: str) -> None:
    """Raise an error if PowerShell does not run the script, or does not import the module."""
    if why := find_refusal(machine, path):
        raise RefusedByWindows(f"{path} cannot be loaded: {why}")


def find_refusal(machine: Machine, path: str) -> str:
    """Why PowerShell does not run a script. Empty if it does. The machine keeps what it refused."""
    why = _refusal(machine, path)
    if why:
        machine.refused[path] = why
    return why


def _refusal(machine: Machine, path: str) -> str:
    enabled, policy = machine.registry.number(POLICY, "EnableScripts"), machine.registry.text(POLICY, "ExecutionPolicy")
    if not is_script(path) or enabled is None:
        return ""
    if not enabled or policy == "Restricted":
        return "the policy of the machine allows no scripts"
    if policy != ALL_SIGNED:
        return ""
    fault = _find_fault(machine, path)
    return f"{fault}, and the policy of the machine is {ALL_SIGNED}" if fault else ""


def _find_fault(machine: Machine, path: str) -> str:
    """What is wrong with the first signature of a file: Windows PowerShell shows no other. Nothing is revoked, because
    the machine reaches no list."""
    found = verify(io.BytesIO(machine.files.read(path)), path, Trust(machine.date, _roots(machine)))
    if not found.signatures:
        unsigned = found.verdict is Verdict.UNSIGNED
        return "it is not signed" if unsigned else f"its signature is not valid: {found.reason}"
    first = found.signatures[0]
    lacks_root = first.verdict in (Verdict.UNTRUSTED, Verdict.BAD_TIMESTAMP)
    if lacks_root and machine.fetches_roots and _fetch_roots(machine, first):
        return _find_fault(machine, path)
    # Windows itself accepts SHA-1.
    if first.verdict not in (Verdict.VALID, Verdict.WEAK_DIGEST) or first.signer is None:
        return f"its signature is not valid: {first.reason}"
    stores, publisher = machine.certificates, first.signer.sha1
    if any(one.sha1 in stores.thumbprints(DISALLOWED) for one in first.chain):
        return "its signature is not valid: a certificate is in the store Disallowed"
    if publisher not in stores.thumbprints(TRUSTED_PUBLISHER):
        # Nobody answers the question whether it may run.
        return f"its publisher {first.signer.subject} is not in the store TrustedPublisher"
    return ""


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
