"""Finds the signature block of a PowerShell script, and computes the digest that it signs.

The text before the block is digested as UTF-16, with its byte order mark if it has one. Windows' own code for scripts
(pwrshsip.dll) decodes a text with a mark by its mark. Without one it looks at the first 32 bytes: if there is a letter
in UTF-8 among them, the text is UTF-8, otherwise it is in the code page of the machine, which is 1252 here.
"""

import base64
import binascii
import hashlib
import re
from typing import IO, Final

from imagegen.authenticode.contents import SignedDigest
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import FileKind
from imagegen.authenticode.subject import Subject, read_whole
from imagegen.base.lines import counted

LARGEST_SCRIPT: Final = 16 * 1024 * 1024
_HASH_COMMENT: Final = ("# ", "")
_XML_COMMENT: Final = ("<!-- ", " -->")
# How a line of the block begins and ends, by the extension of the file.
COMMENTS: Final = {
    ".ps1": _HASH_COMMENT,
    ".psm1": _HASH_COMMENT,
    ".psd1": _HASH_COMMENT,
    ".ps1xml": _XML_COMMENT,
    ".psc1": _XML_COMMENT,
    ".cdxml": _XML_COMMENT,
}
_BEGIN: Final = "SIG # Begin signature block"
_END: Final = "SIG # End signature block"
_MARKS: Final = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be", b"\xef\xbb\xbf": "utf-8"}
_PROBE: Final = 32
# Windows accepts any one or two of these after the block.
_LINE_ENDS: Final = ("", "\r", "\n", "\r\n", "\n\r", "\r\r", "\n\n")
_ASCII: Final = 0x80
# Python leaves five bytes of this code page undecoded. Windows takes them for control characters.
_UNASSIGNED: Final = {0xDC00 + byte: byte for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}
_NO_LETTER: Final = "\ufffd"
_LONGEST_LINE: Final = 64


class Script(Subject):
    """A PowerShell script."""

    kind = FileKind.SCRIPT
    form = "603bcc1f-4b59-4e08-b724-d2c6297ef351"

    def __init__(self, file: IO[bytes], extension: str) -> None:
        super().__init__(file)
        self._opening, self._closing = COMMENTS[extension]
        self._data = read_whole(file, LARGEST_SCRIPT, "the script")
        self._text = _decode(self._data)
        self._signed = self._text

    def read_signature(self) -> None:
        """Read the signature block, if there is one."""
        begin = self._line(_BEGIN)
        place = self._text.find(f"\r\n{begin}")
        if place < 0:
            if re.search(f"^{re.escape(begin.rstrip())}", self._text, re.MULTILINE):
                raise MalformedData("the signature block does not begin on a line of its own after a Windows line end")
            return
        self._signed = self._text[:place]
        lines, end, rest = self._text[place + 2 + len(begin) :].partition(f"\r\n{self._line(_END)}")
        if not end:
            raise MalformedData("the signature block has no end, or its line ends were changed")
        if rest not in _LINE_ENDS:
            surplus = counted(len(rest.removeprefix("\r\n")), "character")
            raise MalformedData(f"the signature block is followed by {surplus}")
        if _NO_LETTER in self._signed:
            # Different bytes would have the same digest.
            raise MalformedData("the text before the signature block has bytes that are no letters")
        self.signature = self._decode_block(lines)

    def _line(self, text: str) -> str:
        return f"{self._opening}{text}{self._closing}"

    def _decode_block(self, block: str) -> bytes:
        parts = []
        for line in block.split("\r\n")[1:]:
            if not line.startswith(self._opening) or not line.endswith(self._closing):
                raise MalformedData("a line of the signature block is not a comment")
            parts.append(line.removeprefix(self._opening).removesuffix(self._closing))
        if any(len(part) != _LONGEST_LINE for part in parts[:-1]):
            raise MalformedData(f"a line of the signature block does not have {_LONGEST_LINE} characters")
        try:
            data = base64.b64decode("".join(parts), validate=True)
        except (binascii.Error, ValueError):
            raise MalformedData("the signature block is not valid base64") from None
        # Unused bits of the last character could differ without changing the bytes.
        if base64.b64encode(data).decode() != "".join(parts):
            raise MalformedData("the signature block is not valid base64")
        return data

    def digest(self, algorithm: str) -> bytes:
        """The Authenticode digest."""
        return _digest(self._signed, algorithm)

    def difference(self, signed: SignedDigest) -> str:
        """In what the file differs from the one that was signed. Empty: it is the same."""
        difference = super().difference(signed)
        if difference and not self._data.startswith(tuple(_MARKS)):
            text = self._data.decode("utf-8", "replace")
            place = text.find(f"\r\n{self._line(_BEGIN)}")
            if _digest(text[:place], signed.algorithm) == signed.digest:
                return (
                    "it was signed as UTF-8, but Windows reads it in the machine's code page, because it has no byte "
                    "order mark: save it as UTF-8 with a byte order mark, and sign it again"
                )
        return difference


def _decode(data: bytes) -> str:
    """The text as Windows reads it. Bytes that are no letters become U+FFFD."""
    encoding = next((found for mark, found in _MARKS.items() if data.startswith(mark)), "")
    if encoding or _begins_as_utf8(data[:_PROBE]):
        return data.decode(encoding or "utf-8", "replace")
    return data.decode("cp1252", "surrogateescape").translate(_UNASSIGNED)


def _begins_as_utf8(data: bytes) -> bool:
    """Whether there is a letter of several bytes among these, and every one of them is complete."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return any(byte >= _ASCII for byte in data)


def _digest(text: str, algorithm: str) -> bytes:
    return hashlib.new(algorithm, text.encode("utf-16-le"), usedforsecurity=False).digest()
