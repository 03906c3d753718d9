"""The key that is shipped, against a signature that HashiCorp published: terraform-provider-null 3.1.0, April 2021.

What Sequoia has to refuse by itself is signed here by a key of our own.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pysequoia
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pysequoia.packet import PacketPile

from imagegen.base.console import Console
from imagegen.build import release
from imagegen.build.openpgp import SignatureError, read_certificate, verify
from imagegen.fetch.http import UnreachableError
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable

SUMS = (REPOSITORY / "tests/data/hashicorp/terraform-provider-null_3.1.0_SHA256SUMS").read_bytes()
SIGNATURE = (REPOSITORY / "tests/data/hashicorp/terraform-provider-null_3.1.0_SHA256SUMS.sig").read_bytes()
ARMORED = (REPOSITORY / "imagegen/build/hashicorp-releases.asc").read_bytes()
MISMATCH = "does not match the file, or its key was not valid"


@pytest.fixture(scope="module")
def certificate() -> pysequoia.Cert:
    return read_certificate(ARMORED)


def test_the_shipped_key_is_hashicorps(certificate: pysequoia.Cert) -> None:
    assert certificate.fingerprint.upper() == release.FINGERPRINT


def test_a_signature_that_hashicorp_published_holds(certificate: pysequoia.Cert) -> None:
    # Its key expired in 2022, a year after it was made.
    verify(SUMS, SIGNATURE, certificate)


def test_one_of_several_signatures_is_enough(certificate: pysequoia.Cert) -> None:
    verify(SUMS, flipped(SIGNATURE, 14) + SIGNATURE, certificate)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("sums", "signature", "why"),
    [
        (SUMS + b"\n", SIGNATURE, MISMATCH),
        (flipped(SUMS, 0), SIGNATURE, MISMATCH),
        (SUMS, flipped(SIGNATURE, -1 + len(SIGNATURE)), MISMATCH),
        # Its date, which is signed too.
        (SUMS, flipped(SIGNATURE, 14), MISMATCH),
        (SUMS, flipped(SIGNATURE, 24), "made by the key b0b441097685b677, not by c874"),
        (SUMS, SIGNATURE[:-1], "not an OpenPGP signature: .*Truncated"),
        (SUMS, SIGNATURE[:20], "not an OpenPGP signature: .*Truncated"),
        (SUMS, SIGNATURE[:3], "not a"),
        (SUMS, b"", "empty"),
        (SUMS, b"<html>", "not an OpenPGP signature"),
        (SUMS, b"\xc6" + SIGNATURE[1:], "not a detached RSA signature"),
        (SUMS, SIGNATURE[:3] + b"\x03" + SIGNATURE[4:], "not a detached RSA signature of version 4"),
        (SUMS, SIGNATURE[:5] + b"\x16" + SIGNATURE[6:], "not a detached RSA signature of version 4"),
        (SUMS, SIGNATURE[:4] + b"\x01" + SIGNATURE[5:], "not a signature of a file"),
        (SUMS, SIGNATURE[:6] + b"\x02" + SIGNATURE[7:], MISMATCH),
        (SUMS, SIGNATURE[:7] + b"\xff\xff" + SIGNATURE[9:], "not a"),
        (SUMS, SIGNATURE[:10] + b"\x03" + SIGNATURE[11:], MISMATCH),
        (SUMS, SIGNATURE[:10] + b"\xe4" + SIGNATURE[11:], MISMATCH),
    ],
)
def test_any_other_does_not(certificate: pysequoia.Cert, sums: bytes, signature: bytes, why: str) -> None:
    with pytest.raises(SignatureError, match=why):
        verify(sums, signature, certificate)


@functools.cache
def own_key() -> pysequoia.Tsk:
    """An RSA key of 2048 bits that may sign."""
    suite = pysequoia.CipherSuite.RSA2k
    return pysequoia.Tsk.generate("tester", profile=pysequoia.Profile.RFC4880, cipher_suite=suite)


def signing_key() -> tuple[rsa.RSAPrivateKey, bytes, int]:
    """The key of `own_key` that signs, its id, and when it was made."""
    detached = pysequoia.SignatureMode.DETACHED
    signer = pysequoia.Sig.from_bytes(pysequoia.sign(own_key().signer(), b"", mode=detached, armor=False))
    packets = PacketPile.from_bytes(bytes(own_key()))
    subkey = next(packet for packet in packets if packet.fingerprint == signer.issuer_fingerprint)
    fields = io.BytesIO(subkey.body[6:])

    def number() -> int:
        return int.from_bytes(fields.read((int.from_bytes(fields.read(2)) + 7) // 8))

    n, e = number(), number()
    assert fields.read(1) == b"\0", "the secret is not encrypted"
    d, p, q = number(), number(), number()
    numbers = rsa.RSAPrivateNumbers(
        p, q, d, d % (p - 1), d % (q - 1), rsa.rsa_crt_iqmp(p, q), rsa.RSAPublicNumbers(e, n)
    )
    key_id = bytes.fromhex(str(subkey.key_id))
    return numbers.private_key(), key_id, int.from_bytes(subkey.body[1:5])


def signed(data: bytes, *, method: int = 8, after_s: int = 0, extra: bytes = b"") -> bytes:
    """A signature by `own_key`, `after_s` seconds after the key was made, with `extra` signed subpackets."""
    key, key_id, made = signing_key()
    date = b"\x05\x02" + (made + after_s).to_bytes(4)
    issuer = b"\x09\x10" + key_id
    hashed = bytes([4, 0, 1, method]) + len(date + issuer + extra).to_bytes(2) + date + issuer + extra
    trailer = hashed + b"\x04\xff" + len(hashed).to_bytes(4)
    used = {2: hashes.SHA1(), 8: hashes.SHA256(), 10: hashes.SHA512()}[method]  # noqa: S303
    number = key.sign(data + trailer, padding.PKCS1v15(), used)
    digest = hashlib.new(used.name, data + trailer).digest()
    body = hashed + b"\0\0" + digest[:2] + (8 * len(number)).to_bytes(2) + number
    return b"\xc2\xff" + len(body).to_bytes(4) + body


@pytest.mark.parametrize("method", [8, 10])
def test_a_signature_of_this_form_holds(method: int) -> None:
    verify(b"data", signed(b"data", method=method), own_key().extract_certificate())


@pytest.mark.parametrize(
    ("method", "after_s", "extra"),
    [
        (2, 0, b""),
        (8, -1, b""),
        (8, 3600 * 24, b""),
        # A critical subpacket that nobody knows.
        (8, 0, b"\x02\xe4\x00"),
    ],
    ids=["SHA-1", "before its key", "in the future", "critical"],
)
def test_sequoia_refuses_a_signature(method: int, after_s: int, extra: bytes) -> None:
    signature = signed(b"data", method=method, after_s=after_s, extra=extra)
    with pytest.raises(SignatureError, match=MISMATCH):
        verify(b"data", signature, own_key().extract_certificate())


def test_sequoia_refuses_a_revoked_key() -> None:
    key = own_key()
    certificate = key.extract_certificate()
    revoked = bytes(certificate) + bytes(certificate.revoke(key.certifier()))
    with pytest.raises(SignatureError, match=MISMATCH):
        verify(b"data", signed(b"data"), read_certificate(revoked))


def armored(change: Callable[[bytes], bytes]) -> bytes:
    body = re.search(rb"\n\n(xs[^=-]*)", ARMORED)
    assert body is not None
    data = change(base64.b64decode(re.sub(rb"\s", b"", body[1]) + b"=="))
    block = b"PGP PUBLIC KEY BLOCK"
    return b"-----BEGIN %s-----\n\n%s\n-----END %s-----\n" % (block, base64.b64encode(data), block)


@pytest.mark.parametrize(
    "text",
    [
        armored(lambda data: data[:-1]),
        armored(lambda data: data + data),
        armored(lambda _: b""),
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----",
        b"<html>",
        SIGNATURE,
    ],
)
def test_what_is_not_one_key_is_not_read(text: bytes) -> None:
    with pytest.raises(SignatureError, match="not an OpenPGP key: "):
        read_certificate(text)


def test_a_subkey_that_was_changed_signs_nothing() -> None:
    packets = list(PacketPile.from_bytes(bytes(read_certificate(ARMORED))))
    number = [packet.key_id for packet in packets].index("b0b441097685b676")
    data = [bytes(packet) for packet in packets]
    data[number] = flipped(data[number], 300)
    with pytest.raises(SignatureError, match="not by c874"):
        verify(SUMS, SIGNATURE, read_certificate(b"".join(data)))


def test_without_sequoia_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "imagegen.build.openpgp")
    monkeypatch.delattr("imagegen.build.openpgp")
    monkeypatch.setitem(sys.modules, "pysequoia", None)
    monkeypatch.setattr("imagegen.build.release.read_starts", lambda *_, **__: (SUMS, SIGNATURE, b""))
    binary = tmp_path / "packer-v1.16.0" / "packer"
    with pytest.raises(UnreachableError, match="cannot be verified on this machine, because it has no package"):
        release.OfficialReleases().fetch_packer(binary, environ={}, console=Console(io.StringIO(), plain=True))
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_is_too_long_for_its_length_is_refused(certificate: pysequoia.Cert) -> None:
    (packet,) = PacketPile.from_bytes(SIGNATURE)
    start = 4
    for _ in range(2):
        start += 2 + int.from_bytes(packet.body[start : start + 2])
    body = packet.body[: start + 2] + b"\xff\xff" + b"\xff" * 8192
    with pytest.raises(SignatureError, match="not an OpenPGP signature"):
        verify(SUMS, b"\xc2\xff" + len(body).to_bytes(4) + body, certificate)
