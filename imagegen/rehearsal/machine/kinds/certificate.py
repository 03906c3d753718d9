"""A certificate in a store of the model machine."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.certificates import TRUSTED_PUBLISHER
from imagegen.rehearsal.machine.certificates import Certificate as Stored
from imagegen.rehearsal.machine.kinds.kind import digest
from imagegen.rehearsal.machine.signatures import check_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.kinds.kind import Facts, Supplies
    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.steps.kinds import Certificate


def get(machine: Machine, wanted: Certificate) -> Facts | None:
    found = machine.certificates.find(wanted.thumbprint, _store(wanted))
    return {"sha256": digest(found.data)} if found else None


def test(_machine: Machine, wanted: Certificate, facts: Facts | None) -> list[str]:
    if facts is None:
        return [f"the store {wanted.store} does not have {wanted.subject}"]
    return [] if facts["sha256"] == wanted.sha256 else [f"sha256 is {facts['sha256']}, not {wanted.sha256}"]


def put(machine: Machine, wanted: Certificate, supplies: Supplies) -> bool:
    data = machine.files.read(f"{supplies.bundle}\\{wanted.source}")
    # First: the next run would find the certificate, and check nothing.
    if _store(wanted) == TRUSTED_PUBLISHER:
        _check_scripts(machine, wanted, supplies)
    thumbprint = hashlib.sha1(data, usedforsecurity=False).hexdigest().upper()
    machine.certificates.add(Stored(thumbprint, data), _store(wanted))
    return False


def _store(wanted: Certificate) -> str:
    return rf"LocalMachine\{wanted.store}"


def _check_scripts(machine: Machine, wanted: Certificate, supplies: Supplies) -> None:
    """Before the policy applies: from then on, PowerShell would only say that a script cannot be loaded."""
    for name, sha256 in supplies.files.items():
        signature = supplies.signatures.get(sha256)
        if signature is not None and signature.thumbprint == wanted.sha256:
            check_signature(machine, machine.files.read(f"{supplies.bundle}\\{name}"), name, supplies)
