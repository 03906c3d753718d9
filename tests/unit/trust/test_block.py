"""The signature block of a script: where it begins, and what is before it."""

from __future__ import annotations

import pytest

from imagegen.trust.block import is_script, is_signed, without_signature
from tests.authenticode.pki import pki
from tests.authenticode.signing import sign_script

TEXTS = [b"", b"Write-Output 1", b"Write-Output 1\n", b"Write-Output 1\r\n", "Größe\r\n".encode("utf-8-sig")]


@pytest.mark.parametrize("text", [*TEXTS, "\ufeffGröße\r\n".encode("utf-16-le")])
def test_what_was_signed_is_what_is_left(text: bytes) -> None:
    signed = sign_script(text, pki().signer)
    assert without_signature(signed) == without_signature(text) == text
    assert (is_signed(signed), is_signed(text)) == (True, False)


def test_a_block_whose_line_ends_were_changed_is_none() -> None:
    """PowerShell does not find it either."""
    assert not is_signed(sign_script(b"1\n", pki().signer).replace(b"\r\n", b"\n"))


@pytest.mark.parametrize(
    ("path", "is_one"),
    [("start.ps1", True), ("A.PSM1", True), ("a.psd1", True), ("a.ps1xml", False), ("a.cmd", False), ("ps1", False)],
)
def test_a_script_is_known_by_its_extension(path: str, is_one: bool) -> None:
    assert is_script(path) == is_one
