"""The signature block at the end of a PowerShell script. Pure."""

import codecs
from typing import Final

ENDINGS: Final = (".ps1", ".psm1", ".psd1")
# As Windows finds it: with the line end before it, which is not signed.
_BLOCK: Final = "\r\n# SIG # Begin signature block"
_MARKS: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


def is_script(path: str) -> bool:
    """Whether PowerShell runs or reads the file, and asks for its signature."""
    return path.lower().endswith(ENDINGS)


def without_signature(data: bytes) -> bytes:
    """A script without its signature block."""
    encoding = next((name for mark, name in _MARKS.items() if data.startswith(mark)), "ascii")
    return data.partition(_BLOCK.encode(encoding))[0]


def is_signed(data: bytes) -> bool:
    """Whether a script has a signature block, valid or not."""
    return without_signature(data) != data
