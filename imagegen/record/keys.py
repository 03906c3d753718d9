"""Signs and verifies bytes with the keys of PEM files, in the ways of Sigstore's tools. Pure.

Ed25519 as it is, ECDSA on P-256 with SHA-256, and RSA with SHA-256 and the padding of PKCS #1 v1.5.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import CryptoSigner, Signature, SSlibKey

from imagegen.base.errors import ConfigError

# NIST SP 800-131A allows no shorter keys, and longer ones take seconds for each signature.
_RSA_BITS: Final = (2048, 8192)
# The library would choose another padding.
_RSA_SCHEME: Final = "rsa-pkcs1v15-sha256"
_LABEL: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,60})-----")
_MAKE_KEY: Final = "openssl genpkey -algorithm ed25519 -out attest.key"
_PRINT_PUBLIC: Final = "give a public key: `openssl pkey -in KEY -pubout` prints that of a private one"
_KINDS: Final = "an Ed25519 key, an ECDSA key on P-256, or an RSA key with 2048 to 8192 bits"


@dataclasses.dataclass(frozen=True)
class VerifyingKey:
    """A public key."""

    _key: Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey

    @property
    def id(self) -> str:
        """The sha256 of the key in DER: a name for people, which proves nothing."""
        return hashlib.sha256(self._key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()

    @property
    def kind(self) -> str:
        return {"ed25519": "Ed25519", "ecdsa": "ECDSA", "rsa": "RSA"}[self.library_key.keytype]

    @property
    def library_key(self) -> SSlibKey:
        """The key with its way to sign."""
        scheme = _RSA_SCHEME if isinstance(self._key, RSAPublicKey) else None
        return SSlibKey.from_crypto(self._key, self.id, scheme)

    def has_signed(self, data: bytes, signature: bytes) -> bool:
        """Whether the signature is one of these bytes by this key."""
        try:
            self.library_key.verify_signature(Signature(self.id, signature.hex()), data)
        except UnverifiedSignatureError:
            return False
        return True


@dataclasses.dataclass(frozen=True)
class SigningKey:
    """A private key. Its text never leaves this object."""

    _key: Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey = dataclasses.field(repr=False)

    @property
    def public(self) -> VerifyingKey:
        return VerifyingKey(self._key.public_key())

    def sign(self, data: bytes) -> bytes:
        """A signature of these bytes."""
        signed = CryptoSigner(self._key, self.public.library_key).sign(data)
        return bytes.fromhex(signed.signature)


def read_signing_key(data: bytes, shown_as: str, passphrase: bytes | None) -> SigningKey:
    """The private key of a PEM file. Anything else is a ConfigError."""
    label = _label(data, shown_as, f"make a key with `{_MAKE_KEY}`")
    if label.endswith("PUBLIC KEY") or label == "CERTIFICATE":
        raise ConfigError(f"{shown_as} is {_noun(label)}, not a private key", hint=f"make a key with `{_MAKE_KEY}`")
    if "SIGSTORE" in label:
        hint = f"sign with cosign itself: --cosign --cosign-key {shlex.quote(shown_as)}"
        raise ConfigError(f"{shown_as} is a key of cosign, which only cosign can read", hint=hint)
    if label == "OPENSSH PRIVATE KEY":
        hint = f"make a key with `{_MAKE_KEY}`, or convert a copy of this one: `ssh-keygen -p -m PKCS8 -f COPY`"
        raise ConfigError(f"{shown_as} is a key of OpenSSH, not a key in PKCS #8", hint=hint)
    try:
        key = load_pem_private_key(data, passphrase)
    except TypeError:
        if passphrase is None:
            hint = "name the environment variable with its passphrase: --key-passphrase-env NAME"
            raise ConfigError(f"the key {shown_as} is encrypted", hint=hint) from None
        raise ConfigError(f"the key {shown_as} is not encrypted", hint="leave --key-passphrase-env out") from None
    except (ValueError, UnsupportedAlgorithm):
        if passphrase is not None:
            hint = "check the environment variable that --key-passphrase-env names"
            message = f"the key {shown_as} cannot be read: the passphrase is wrong, or the file is damaged"
            raise ConfigError(message, hint=hint) from None
        raise ConfigError(f"{shown_as} is not a valid key in PEM", hint=f"make one with `{_MAKE_KEY}`") from None
    if isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey | RSAPrivateKey):
        _check_strength(key.public_key(), shown_as)
        return SigningKey(key)
    raise _unsupported(shown_as, type(key).__name__)


def read_verifying_key(data: bytes, shown_as: str) -> VerifyingKey:
    """The public key of a PEM file. Anything else is a ConfigError."""
    label = _label(data, shown_as, _PRINT_PUBLIC)
    if label.endswith("PRIVATE KEY"):
        hint = f"give the public key: `openssl pkey -in {shlex.quote(shown_as)} -pubout -out attest.pub` writes it"
        raise ConfigError(f"{shown_as} is {_noun(label)}, which must stay where it signs", hint=hint)
    if label == "CERTIFICATE":
        hint = f"give the public key: `openssl x509 -in {shlex.quote(shown_as)} -pubkey -noout` prints it"
        raise ConfigError(f"{shown_as} is a certificate, not a public key", hint=hint)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{shown_as} is not a valid public key in PEM", hint=_PRINT_PUBLIC) from None
    if isinstance(key, Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey):
        _check_strength(key, shown_as)
        return VerifyingKey(key)
    raise _unsupported(shown_as, type(key).__name__)


def _label(data: bytes, shown_as: str, hint: str) -> str:
    found = _LABEL.search(data)
    if found is None:
        raise ConfigError(f"{shown_as} is not a key in PEM", hint=hint)
    return found[1].decode("ascii")


def _noun(label: str) -> str:
    return {"CERTIFICATE": "a certificate"}.get(label, "a public key" if "PUBLIC" in label else "a private key")


def _check_strength(key: Ed25519PublicKey | EllipticCurvePublicKey | RSAPublicKey, shown_as: str) -> None:
    if isinstance(key, EllipticCurvePublicKey) and not isinstance(key.curve, SECP256R1):
        raise _unsupported(shown_as, f"ECDSA on {key.curve.name}")
    if isinstance(key, RSAPublicKey) and not _RSA_BITS[0] <= key.key_size <= _RSA_BITS[1]:
        raise _unsupported(shown_as, f"RSA with {key.key_size} bits")


def _unsupported(shown_as: str, kind: str) -> ConfigError:
    hint = f"use {_KINDS}; `{_MAKE_KEY}` makes one"
    return ConfigError(f"the key {shown_as} is of an unsupported kind: {kind.lstrip('_')}", hint=hint)
