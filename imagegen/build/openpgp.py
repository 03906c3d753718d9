"""Verifies OpenPGP signatures of HashiCorp's form: detached, version 4, RSA, made by a signing subkey (RFC 4880). Pure.

RSA comes from the cryptography package. Strict OpenPGP libraries reject genuine signatures of HashiCorp, because
HashiCorp's tool counts the leading zero bits of a number in its length.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_ARMOR = re.compile(
    r"^-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:[^\n]+\n)*\n(?P<data>[A-Za-z0-9+/=\n]+?)(?:\n=[A-Za-z0-9+/]{4})?"
    r"\n-----END PGP PUBLIC KEY BLOCK-----",
    re.MULTILINE,
)
_SIGNATURE, _PRIMARY, _USER_ID, _SUBKEY = 2, 6, 13, 14
_DETACHED, _SUBKEY_BINDING = 0x00, 0x18
# Certifications of a name and of the key itself. They are not needed, because the fingerprint is known.
_ABOUT_PRIMARY: Final = frozenset({0x10, 0x11, 0x12, 0x13, 0x1F})
_RSA: Final = 1
_HASHES: Final = {8: "SHA256", 9: "SHA384", 10: "SHA512"}
_CREATED, _SIGNATURE_EXPIRES, _KEY_EXPIRES, _ISSUER, _FLAGS, _ISSUER_FINGERPRINT = 2, 3, 9, 16, 27, 33
_MAY_SIGN: Final = 0x02
_CRITICAL: Final = 0x80
# Subpackets that may be marked critical: those that this module reads, and preferences that do not matter to it.
_UNDERSTOOD: Final = frozenset(
    {_CREATED, _KEY_EXPIRES, _ISSUER, _FLAGS, 11, 21, 22, 23, 25, 30, 32, _ISSUER_FINGERPRINT}
)


class SignatureError(Exception):
    """The bytes are not a signature, or the signature is not valid."""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A public key with its signing subkeys."""

    fingerprint: str
    signers: tuple[_Signer, ...]

    def verify(self, data: bytes, signature: bytes) -> None:
        """SignatureError unless a subkey that was valid at the time has signed `data`."""
        reasons = []
        for tag, body in _packets(signature):
            if tag != _SIGNATURE:
                raise SignatureError("it is not a detached signature")
            parsed = _read_signature(body)
            try:
                self._verify_one(data, parsed)
            except SignatureError as error:
                reasons.append(str(error))
            else:
                return
        raise SignatureError("; ".join(reasons) or "it is empty")

    def _verify_one(self, data: bytes, parsed: _Signature) -> None:
        if parsed.kind != _DETACHED:
            raise SignatureError("it is not a signature of a file")
        signer = next((signer for signer in self.signers if signer.key.fingerprint.endswith(parsed.issuer)), None)
        if signer is None or not parsed.issuer:
            raise SignatureError(f"it was made by the key {parsed.issuer or '(unnamed)'}, not by {self.fingerprint}")
        if not signer.key.created <= parsed.created < signer.expires:
            raise SignatureError(f"its key {parsed.issuer} was not valid when the signature was made")
        if not parsed.is_valid_for(data, signer.key):
            raise SignatureError("it does not match the file")


def read_certificate(armored: str) -> Certificate:
    """The certificate in an armored public key. Only statements that the primary key has signed count."""
    primary: _Key | None = None
    signers: dict[str, tuple[int, _Signer]] = {}
    owner = b""
    for tag, body in _packets(_unarmored(armored)):
        if tag == _PRIMARY and primary is None:
            primary = _read_key(body)
        elif tag == _USER_ID:
            owner = b""
        elif tag == _SUBKEY:
            owner = body
        elif tag == _SIGNATURE and primary is not None:
            parsed = _read_signature(body)
            if owner and parsed.kind == _SUBKEY_BINDING:
                key = _read_key(owner)
                if not parsed.is_valid_for(primary.hashed + key.hashed, primary):
                    raise SignatureError(f"the primary key has not signed its subkey {key.fingerprint}")
                # Of several bindings, the newest sets when the subkey expires.
                if parsed.created >= signers.get(key.fingerprint, (0,))[0]:
                    signers[key.fingerprint] = (parsed.created, _Signer(key, parsed.key_ends(key), parsed.may_sign))
            elif owner or parsed.kind not in _ABOUT_PRIMARY:
                raise SignatureError(f"a signature of type {parsed.kind:#x} is not supported in a public key")
        else:
            raise SignatureError(f"a packet of type {tag} is not supported in a public key")
    if primary is None:
        raise SignatureError("it holds no public key")
    return Certificate(primary.fingerprint, tuple(signer for _, signer in signers.values() if signer.may_sign))


@dataclasses.dataclass(frozen=True)
class _Key:
    body: bytes
    created: int
    modulus: int
    exponent: int

    @property
    def hashed(self) -> bytes:
        """The bytes of the key that fingerprints and signatures hash."""
        return b"\x99" + len(self.body).to_bytes(2) + self.body

    @property
    def fingerprint(self) -> str:
        return hashlib.sha1(self.hashed, usedforsecurity=False).hexdigest().upper()


@dataclasses.dataclass(frozen=True)
class _Signer:
    key: _Key
    expires: float
    may_sign: bool


@dataclasses.dataclass(frozen=True)
class _Signature:
    kind: int
    hash: str
    trailer: bytes
    signed_fields: Mapping[int, bytes]
    """The subpackets that the signature covers."""
    issuer: str
    number: int

    @property
    def created(self) -> int:
        return int.from_bytes(self.signed_fields[_CREATED])

    @property
    def may_sign(self) -> bool:
        return bool(int.from_bytes(self.signed_fields.get(_FLAGS, b"")[:1]) & _MAY_SIGN)

    def key_ends(self, key: _Key) -> float:
        """When the key of this binding expires, in seconds since 1970."""
        lifetime = int.from_bytes(self.signed_fields.get(_KEY_EXPIRES, b""))
        return key.created + lifetime if lifetime else float("inf")

    def is_valid_for(self, data: bytes, key: _Key) -> bool:
        public = rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()
        if self.number >= key.modulus:
            return False
        signed = self.number.to_bytes((public.key_size + 7) // 8)
        method: hashes.HashAlgorithm = getattr(hashes, self.hash)()
        try:
            public.verify(signed, data + self.trailer, padding.PKCS1v15(), method)
        except InvalidSignature:
            return False
        return True


class _Reader:
    """Reads bytes from the front. Reading beyond the end is an error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def rest(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.rest:
            raise SignatureError("it is truncated")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, octets: int) -> int:
        return int.from_bytes(self.take(octets))

    def integer(self) -> int:
        """A multiprecision integer; its length may count leading zero bits."""
        return self.number((self.number(2) + 7) // 8)


def _unarmored(text: str) -> bytes:
    match = _ARMOR.search(text)
    if match is None:
        raise SignatureError("it is not an armored public key")
    try:
        return base64.b64decode(match["data"].replace("\n", ""), validate=True)
    except binascii.Error as error:
        raise SignatureError("it is not an armored public key") from error


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(data)
    while reader.rest:
        head = reader.number(1)
        if not head & 0x80:
            raise SignatureError("it is not an OpenPGP packet")
        if head & 0x40:
            yield head & 0x3F, reader.take(_new_length(reader))
        elif head & 0x03 == 0x03:
            raise SignatureError("a packet without a length is not supported")
        else:
            yield head >> 2 & 0x0F, reader.take(reader.number(1 << (head & 0x03)))


def _new_length(reader: _Reader) -> int:
    first = reader.number(1)
    if first < 192:
        return first
    if first < 224:
        return (first - 192 << 8) + reader.number(1) + 192
    if first == 255:
        return reader.number(4)
    raise SignatureError("a packet in parts is not supported")


def _read_key(body: bytes) -> _Key:
    reader = _Reader(body)
    version, created, algorithm = reader.number(1), reader.number(4), reader.number(1)
    if (version, algorithm) != (4, _RSA):
        raise SignatureError("only RSA keys of version 4 are supported")
    return _Key(body, created, reader.integer(), reader.integer())


def _read_signature(body: bytes) -> _Signature:
    reader = _Reader(body)
    version, kind, algorithm, method = (reader.number(1) for _ in range(4))
    if (version, algorithm) != (4, _RSA) or method not in _HASHES:
        raise SignatureError("only RSA signatures of version 4 with SHA-2 are supported")
    hashed = reader.take(reader.number(2))
    signed_fields = dict(_subpackets(hashed))
    unsigned_fields = dict(_subpackets(reader.take(reader.number(2))))
    reader.take(2)  # the first octets of the digest, which only speed up a check of many keys
    if len(signed_fields.get(_CREATED, b"")) != 4 or _SIGNATURE_EXPIRES in signed_fields:
        raise SignatureError("a signature without a date, or that expires, is not supported")
    signed = body[: 6 + len(hashed)]
    trailer = signed + b"\x04\xff" + len(signed).to_bytes(4)
    # The issuer need not be signed: it only says which key to try.
    named = {**unsigned_fields, **signed_fields}
    issuer = named.get(_ISSUER_FINGERPRINT, b"")[1:] or named.get(_ISSUER, b"")
    return _Signature(kind, _HASHES[method], trailer, signed_fields, issuer.hex().upper(), reader.integer())


def _subpackets(data: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(data)
    while reader.rest:
        first = reader.number(1)
        if first == 255:
            length = reader.number(4)
        else:
            length = first if first < 192 else (first - 192 << 8) + reader.number(1) + 192
        body = _Reader(reader.take(length))
        kind = body.number(1)
        if kind & _CRITICAL and kind & ~_CRITICAL not in _UNDERSTOOD:
            raise SignatureError(f"it has a critical part of type {kind & ~_CRITICAL}, which is not supported")
        yield kind & ~_CRITICAL, body.take(body.rest)
