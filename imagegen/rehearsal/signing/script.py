"""The signature block of a PowerShell script. Pure."""

from __future__ import annotations

import base64
import hashlib
import textwrap
from typing import TYPE_CHECKING

from imagegen.rehearsal.signing.signature import SCRIPT, make_signature

if TYPE_CHECKING:
    from imagegen.rehearsal.signing.authority import CodeSigner

_LINE = 64


def sign_script(data: bytes, signer: CodeSigner) -> bytes:
    """The script, which is ASCII, with a signature block at its end."""
    signature = make_signature(SCRIPT, hashlib.sha256(data.decode("ascii").encode("utf-16-le")).digest(), signer)
    lines = textwrap.wrap(base64.b64encode(signature).decode(), _LINE)
    block = ["", "SIG # Begin signature block", *lines, "SIG # End signature block"]
    return data + "\r\n# ".join(block).encode() + b"\r\n"
