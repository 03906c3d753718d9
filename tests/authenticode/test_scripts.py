"""Scripts: how Windows decodes them, and what a signature block must look like."""

from __future__ import annotations

import base64
import hashlib

import pytest

from imagegen.authenticode.model import FileKind, Verdict
from tests.authenticode.pki import pki
from tests.authenticode.signing import Options, sign_digest, sign_script
from tests.authenticode.support import judge, trust

V = Verdict
_SIP = "603bcc1f-4b59-4e08-b724-d2c6297ef351"
TEXT = "Write-Output 'Grüße'\r\n"


def _sign(data: bytes, name: str = "x.ps1") -> bytes:
    return sign_script(data, pki().signer, extension="." + name.rpartition(".")[2])


@pytest.mark.parametrize(
    "name", ["x.ps1", "X.PS1", "x.psm1", "x.psd1", "x.ps1xml", "x.psc1", "x.cdxml", "x.ps1. ", "a\\b/x.ps1"]
)
def test_scripts_are_known_by_their_names(name: str) -> None:
    extension = name.strip(" .").lower().rpartition(".")[2]
    found = judge(sign_script(b"exit\r\n", pki().signer, extension=f".{extension}"), name, trust())
    assert (found.kind, found.verdict) == (FileKind.SCRIPT, V.VALID), found.reason


@pytest.mark.parametrize("name", ["x.txt", "x.ps1.txt", "ps1", "x.bat"])
def test_other_texts_have_no_signature(name: str) -> None:
    found = judge(_sign(b"exit\r\n"), name, trust())
    assert (found.kind, found.verdict) == (FileKind.OTHER, V.UNSIGNED)


def test_a_program_with_the_name_of_a_script_is_a_script() -> None:
    """PowerShell would run it as a text, whatever its bytes say to other programs."""
    found = judge(b"MZ" + bytes(200), "x.ps1", trust())
    assert (found.kind, found.verdict) == (FileKind.SCRIPT, V.UNSIGNED)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"exit\r\n", "exit\r\n"),
        (b"exit", "exit"),
        (TEXT.encode("utf-8-sig"), "\ufeff" + TEXT),
        (TEXT.encode("utf-16"), "\ufeff" + TEXT),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "\ufeff" + TEXT),
        # The letter is among the first 32 bytes.
        (TEXT.encode(), TEXT),
        # It is not: the text is read in the machine's code page.
        (b"#" * 40 + TEXT.encode(), "#" * 40 + TEXT.encode().decode("cp1252")),
        (TEXT.encode("cp1252"), TEXT),
        (b"\x81\x8d\x8f\x90\x9d\x80", "\x81\x8d\x8f\x90\x9d€"),
    ],
)
def test_the_text_is_signed_as_utf16(data: bytes, text: str) -> None:
    digest = hashlib.sha256(text.encode("utf-16-le")).digest()
    signature = sign_digest(_SIP, digest, pki().signer, Options())
    assert judge(_with_block(data, signature), "x.ps1", trust()).verdict is V.VALID


def _with_block(data: bytes, signature: bytes) -> bytes:
    encoding = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(data[:2], "ascii")
    text = base64.b64encode(signature).decode()
    lines = [f"# {text[at : at + 64]}" for at in range(0, len(text), 64)]
    block = "\r\n".join(["", "# SIG # Begin signature block", *lines, "# SIG # End signature block", ""])
    return data + block.encode(encoding)


def test_a_text_that_windows_reads_otherwise_is_told() -> None:
    """It was signed by a program that takes every text for UTF-8."""
    data = b"#" * 40 + TEXT.encode()
    digest = hashlib.sha256(data.decode().encode("utf-16-le")).digest()
    found = judge(_with_block(data, sign_digest(_SIP, digest, pki().signer, Options())), "x.ps1", trust())
    assert found.verdict is V.ALTERED
    assert found.reason.startswith("it was signed as UTF-8, but Windows reads it in the machine's code page")
    assert found.reason.endswith("save it as UTF-8 with a byte order mark, and sign it again")


def test_bytes_that_are_no_letters_are_not_signed() -> None:
    for data in (b"\xef\xbb\xbf\xff\r\n", b"\xff\xfe\x00\xd8"):
        signed = _sign(data)
        found = judge(signed, "x.ps1", trust())
        assert (found.verdict, found.reason) == (
            V.ALTERED,
            "the text before the signature block has bytes that are no letters",
        )
        assert judge(data, "x.ps1", trust()).verdict is V.UNSIGNED


@pytest.mark.parametrize("end", ["", "\r", "\n", "\r\n", "\n\r", "\r\r", "\n\n"])
def test_the_block_may_end_as_windows_allows(end: str) -> None:
    assert judge(_sign(b"exit\r\n")[:-2] + end.encode(), "x.ps1", trust()).verdict is V.VALID


@pytest.mark.parametrize("end", ["\r\n\r\n", "\n\n\n", " ", "\r\n ", "\0"])
def test_nothing_else_may_follow_the_block(end: str) -> None:
    assert judge(_sign(b"exit\r\n")[:-2] + end.encode(), "x.ps1", trust()).verdict is V.ALTERED


def test_the_first_block_counts() -> None:
    """A script that was signed twice: the first block ends the text, and the second follows it."""
    found = judge(_sign(_sign(b"exit\r\n")), "x.ps1", trust())
    assert (found.verdict, "is followed by" in found.reason) == (V.ALTERED, True)


def test_a_script_that_is_too_large_is_refused() -> None:
    found = judge(b"#" * (16 * 1024 * 1024 + 1), "x.ps1", trust())
    assert (found.verdict, found.reason) == (
        V.ALTERED,
        "the file is damaged: the script has more than 16777216 bytes",
    )
