"""The key that is shipped, against a signature that HashiCorp published: terraform-provider-null 3.1.0, April 2021."""

from __future__ import annotations

import base64
import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from imagegen.build import release
from imagegen.build.openpgp import Certificate, SignatureError, read_certificate
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable

SUMS = (REPOSITORY / "tests/data/hashicorp/terraform-provider-null_3.1.0_SHA256SUMS").read_bytes()
SIGNATURE = (REPOSITORY / "tests/data/hashicorp/terraform-provider-null_3.1.0_SHA256SUMS.sig").read_bytes()
ARMORED = (REPOSITORY / "imagegen/build/hashicorp-releases.asc").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return read_certificate(ARMORED)


def test_the_shipped_key_is_hashicorps(certificate: Certificate) -> None:
    assert certificate.fingerprint == release.FINGERPRINT
    assert [signer.key.fingerprint[-16:] for signer in certificate.signers] == ["B0B441097685B676", "C820C6D5CD27AB87"]


def test_a_signature_that_hashicorp_published_holds(certificate: Certificate) -> None:
    # Its key expired in 2022, a year after it was made.
    certificate.verify(SUMS, SIGNATURE)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("sums", "signature", "why"),
    [
        (SUMS + b"\n", SIGNATURE, "does not match the file"),
        (flipped(SUMS, 0), SIGNATURE, "does not match the file"),
        (SUMS, flipped(SIGNATURE, -1 + len(SIGNATURE)), "does not match the file"),
        # Its date, which is signed too.
        (SUMS, flipped(SIGNATURE, 14), "does not match the file"),
        (SUMS, flipped(SIGNATURE, 24), "made by the key B0B441097685B677, not by C874"),
        (SUMS, SIGNATURE[:-1], "truncated"),
        (SUMS, SIGNATURE[:20], "truncated"),
        (SUMS, b"", "empty"),
        (SUMS, b"<html>", "not an OpenPGP packet"),
        (SUMS, b"\xc6" + SIGNATURE[1:], "not a detached signature"),
        (SUMS, SIGNATURE[:4] + b"\x01" + SIGNATURE[5:], "not a signature of a file"),
        (SUMS, SIGNATURE[:6] + b"\x02" + SIGNATURE[7:], "with SHA-2"),
        (SUMS, SIGNATURE[:10] + b"\x03" + SIGNATURE[11:], "without a date, or that expires"),
        (SUMS, SIGNATURE[:10] + b"\xe4" + SIGNATURE[11:], "critical part of type 100"),
    ],
)
def test_any_other_does_not(certificate: Certificate, sums: bytes, signature: bytes, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        certificate.verify(sums, signature)


@pytest.mark.parametrize("field", ["expires", "created"])
def test_a_key_signs_only_while_it_is_valid(certificate: Certificate, field: str) -> None:
    made = 1619111814
    first = certificate.signers[0]
    late = dataclasses.replace(first, key=dataclasses.replace(first.key, created=made + 1))
    signer = {"expires": dataclasses.replace(first, expires=made), "created": late}[field]
    # The fingerprint covers the key's bytes, which stay.
    with pytest.raises(SignatureError, match="was not valid when the signature was made"):
        dataclasses.replace(certificate, signers=(signer,)).verify(SUMS, SIGNATURE)


def armored(change: Callable[[bytes], bytes]) -> str:
    body = re.search(r"\n\n(mQ[^=-]*)", ARMORED)
    assert body is not None
    data = change(base64.b64decode(re.sub(r"\s", "", body[1]) + "=="))
    block = "PGP PUBLIC KEY BLOCK"
    return f"-----BEGIN {block}-----\n\n{base64.b64encode(data).decode()}\n-----END {block}-----\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        # In the modulus of the second subkey, which signs.
        (armored(lambda data: flipped(data, 2400)), "the primary key has not signed its subkey"),
        (armored(lambda data: data + b"\x88\x00"), "truncated"),
        (armored(lambda data: data + b"\xb4\x01x" + data), "a packet of type 6 is not supported"),
        (armored(lambda _: b""), "not an armored public key"),
        (
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----",
            "not an armored public key",
        ),
        ("<html>", "not an armored public key"),
    ],
)
def test_a_key_that_was_changed_is_not_read(text: str, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        read_certificate(text)
