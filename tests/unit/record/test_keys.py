"""Keys: each supported kind signs and verifies, and every other file is refused by its own message."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, x25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from imagegen.base.errors import ConfigError
from imagegen.record.attest import read_signing_key, read_verifying_key
from tests.attest_support import KINDS, private_pem, public_pem, signing_key


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_key_signs_only_its_public_key_verifies(kind: str) -> None:
    signature = signing_key(kind).sign(b"data")
    key = read_verifying_key(public_pem(kind), "key.pub")
    assert key.id == signing_key(kind).public.id
    assert key.has_signed(b"data", signature)
    assert not key.has_signed(b"Data", signature)
    for other in KINDS:
        assert read_verifying_key(public_pem(other), "key.pub").has_signed(b"data", signature) == (other == kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_signature_is_none(kind: str) -> None:
    key = signing_key(kind)
    signature, public = key.sign(b"data"), key.public
    for at in range(len(signature)):
        flipped = bytes([signature[at] ^ 1 << at % 8])
        assert not public.has_signed(b"data", signature[:at] + flipped + signature[at + 1 :])
        assert not public.has_signed(b"data", signature[:at] + signature[at + 1 :])
    assert not public.has_signed(b"data", b"")


def test_an_encrypted_key_needs_its_passphrase() -> None:
    data = private_pem("ed25519", "correct horse")
    assert read_signing_key(data, "a.key", b"correct horse").public.id == signing_key("ed25519").public.id
    assert "correct" not in repr(read_signing_key(data, "a.key", b"correct horse"))


def pem(label: str, data: bytes = b"nonsense") -> bytes:
    return f"-----BEGIN {label}-----\n{base64.b64encode(data).decode()}\n-----END {label}-----\n".encode()


X25519 = x25519.X25519PrivateKey.generate()
OPENSSH = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


@pytest.mark.parametrize(
    ("data", "passphrase", "message", "hint"),
    [
        (b"", None, "a.key is not a key in PEM", "openssl genpkey"),
        (b"\x00\xff" * 100, None, "a.key is not a key in PEM", "openssl genpkey"),
        (pem("PRIVATE KEY"), None, "a.key is not a valid key in PEM", "openssl genpkey"),
        (public_pem("ed25519"), None, "a.key is a public key, not a private key", "openssl genpkey"),
        (pem("CERTIFICATE"), None, "a.key is a certificate, not a private key", "openssl genpkey"),
        (pem("ENCRYPTED SIGSTORE PRIVATE KEY"), None, "only cosign can read", "--cosign --cosign-key a.key"),
        (OPENSSH, None, "a.key is a key of OpenSSH", "ssh-keygen -p -m PKCS8 -f COPY"),
        (private_pem("ed25519", "x"), None, "the key a.key is encrypted", "--key-passphrase-env NAME"),
        (private_pem("ed25519"), b"x", "the key a.key is not encrypted", "leave --key-passphrase-env out"),
        (private_pem("ed25519", "x"), b"y", "the passphrase is wrong, or the file is damaged", "--key-passphrase-env"),
        (private_pem("p384"), None, "unsupported kind: ECDSA on secp384r1", "ECDSA key on P-256"),
        (private_pem("rsa-1024"), None, "unsupported kind: RSA with 1024 bits", "2048 to 8192 bits"),
        (
            X25519.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            *(None, "unsupported kind: X25519PrivateKey", "Ed25519"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_cannot_sign_is_refused(data: bytes, passphrase: bytes | None, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_signing_key(data, "a.key", passphrase)
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"ssh-ed25519 AAAA", "a.pub is not a key in PEM", "openssl"),
        (pem("PUBLIC KEY"), "a.pub is not a valid public key in PEM", "-pubout"),
        (private_pem("ed25519"), "a.pub is a private key, which must stay where it signs", "-in a.pub -pubout"),
        (private_pem("rsa", "x"), "a.pub is a private key, which must stay where it signs", "-pubout"),
        (pem("CERTIFICATE"), "a.pub is a certificate, not a public key", "openssl x509 -in a.pub -pubkey"),
        (public_pem("p384"), "unsupported kind: ECDSA on secp384r1", "P-256"),
        (public_pem("rsa-1024"), "unsupported kind: RSA with 1024 bits", "2048"),
        (
            X25519.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            *("unsupported kind: X25519PublicKey", "Ed25519"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_cannot_verify_is_refused(data: bytes, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_verifying_key(data, "a.pub")
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("kind", KINDS)
def test_a_signature_that_another_program_made_in_the_way_of_sigstore_is_verified(kind: str) -> None:
    """As an earlier version of imagegen did."""
    match load_pem_private_key(private_pem(kind), None):
        case ed25519.Ed25519PrivateKey() as key:
            signature = key.sign(b"data")
        case ec.EllipticCurvePrivateKey() as key:
            signature = key.sign(b"data", ec.ECDSA(SHA256()))
        case rsa.RSAPrivateKey() as key:
            signature = key.sign(b"data", padding.PKCS1v15(), SHA256())
        case other:
            pytest.fail(f"{other} is not supported")
    assert read_verifying_key(public_pem(kind), "key.pub").has_signed(b"data", signature)
