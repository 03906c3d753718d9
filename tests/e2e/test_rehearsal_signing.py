"""osslsigncode accepts what the rehearsal signs, and rejects it when it was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.signing.authority import SigningAuthority
from imagegen.rehearsal.signing.compound_file import make_compound_file
from imagegen.rehearsal.signing.program import make_program
from imagegen.rehearsal.signing.sign import sign
from tests.authenticode.tools import find_tools

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

FILES = {
    "program.exe": make_program(b"a stand-in\n" * 100),
    "library.dll": make_program(b"a stand-in\n", is_library=True),
    "package.msi": make_compound_file({"Payload": b"x" * 9000, "Short": b"abc"}),
    "script.ps1": b"Write-Output 1\r\n",
}


def test_osslsigncode_agrees(tmp_path: Path) -> None:
    tools = find_tools(tmp_path)
    authority = SigningAuthority((("CN", "Example Root"),))
    signer = authority.certify((("CN", "Example"), ("O", "Example, Inc.")))
    (tmp_path / "roots.pem").write_bytes(authority.pem)
    for name, data in FILES.items():
        signed = sign(name, data, signer)
        at = len(data) // 2
        for content, code in ((signed, 0), (signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :], 1)):
            (tmp_path / name).write_bytes(content)
            argv = [tools.osslsigncode, "verify", "-CAfile", "roots.pem", "-in", name]
            _, output = tools.run(argv, tmp_path, codes=(code,))
            assert ("Succeeded" in output) == (code == 0), output
            # MSI packages may do without a second digest.
            assert code or "invalid" not in output, output
