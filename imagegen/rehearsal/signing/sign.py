"""Signs a stand-in in the way of its form: a program, an MSI package or a PowerShell script. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.signing.compound_file import MAGIC, sign_compound_file
from imagegen.rehearsal.signing.program import sign_program
from imagegen.rehearsal.signing.script import sign_script

if TYPE_CHECKING:
    from imagegen.rehearsal.signing.authority import CodeSigner

_SCRIPTS: Final = (".ps1", ".psm1", ".psd1")


def sign(name: str, data: bytes, signer: CodeSigner) -> bytes:
    """The file with a signature; a file that cannot have one as it is."""
    if name.lower().endswith(_SCRIPTS):
        return sign_script(data, signer)
    if data.startswith(MAGIC):
        return sign_compound_file(data, signer)
    return sign_program(data, signer) if data.startswith(b"MZ") else data
