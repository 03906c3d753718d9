"""Reads X.509 certificates, and verifies single signatures with their keys. Pure.

Digests and keys are those of `cryptography`; certificates come as DER or PEM, and leave as `Certificate`.
"""

import base64
import binascii
import dataclasses
import datetime
import functools
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from asn1crypto import algos, x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key

from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.model import Certificate, Extensions, MalformedData, Name
from imagegen.authenticode.signer import short_type

DIGESTS: Final = {
    "1.2.840.113549.2.5": "md5",
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
WEAK_DIGESTS: Final = frozenset({"md2", "md5", "sha1"})
# What cannot be a forgery only because nobody tried hard enough. SHA-1 is not among these: nobody can make a second
# file for a digest that exists, so it still holds for timestamps and for certificates that CAs issued long ago.
BROKEN_DIGESTS: Final = frozenset({"md2", "md5"})
# Windows accepts no RSA key below it: https://support.microsoft.com/kb/2661254
SHORTEST_RSA_KEY: Final = 1024

_PSS: Final = "1.2.840.113549.1.1.10"
# The digest that the algorithm names, if it names one.
_SIGNATURES: Final = {
    "1.2.840.113549.1.1.1": ("rsa", ""),
    "1.2.840.113549.1.1.2": ("rsa", "md2"),
    "1.2.840.113549.1.1.4": ("rsa", "md5"),
    "1.2.840.113549.1.1.5": ("rsa", "sha1"),
    "1.3.14.3.2.29": ("rsa", "sha1"),
    "1.2.840.113549.1.1.11": ("rsa", "sha256"),
    "1.2.840.113549.1.1.12": ("rsa", "sha384"),
    "1.2.840.113549.1.1.13": ("rsa", "sha512"),
    "1.2.840.10045.2.1": ("ec", ""),
    "1.2.840.10045.4.1": ("ec", "sha1"),
    "1.2.840.10045.4.3.2": ("ec", "sha256"),
    "1.2.840.10045.4.3.3": ("ec", "sha384"),
    "1.2.840.10045.4.3.4": ("ec", "sha512"),
}
_SCHEMES: Final = ("rsa", "pss", "ec")
_HASHES: Final = {
    "md5": hashes.MD5(),  # noqa: S303 - old certificates have it, and are judged for it
    "sha1": hashes.SHA1(),  # noqa: S303 - the same
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
_KEPT_KEYS: Final = 1024


@dataclasses.dataclass(frozen=True)
class SignatureAlgorithm:
    """How a signature is made: `rsa` (PKCS #1 1.5), `pss`, `ec`, or the object identifier of another algorithm.

    `digest` is empty if the algorithm names none.
    """

    scheme: str
    digest: str
    salt_length: int = 0

    def with_digest(self, digest: str) -> "SignatureAlgorithm":
        """The algorithm with the digest that stands beside it. They must agree."""
        if self.scheme not in _SCHEMES:
            raise MalformedData(f"the signature algorithm {self.scheme} is not supported")
        if self.digest and self.digest != digest:
            raise MalformedData(f"the digest is {digest}, but the signature algorithm says {self.digest}")
        return dataclasses.replace(self, digest=digest)


def digest_name(oid: str) -> str:
    """The name of a digest. One that Authenticode does not use is a MalformedData."""
    if oid not in DIGESTS:
        raise MalformedData(f"the digest algorithm {oid} is not supported")
    return DIGESTS[oid]


def digest_label(name: str) -> str:
    """A digest for people: `SHA-256`."""
    return name.upper().replace("SHA", "SHA-")


def digest_of(name: str, parts: Iterable[bytes]) -> bytes:
    """The digest of the joined parts."""
    hasher = hashlib.new(name, usedforsecurity=False)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def read_signature_algorithm(value: Any) -> SignatureAlgorithm:  # noqa: ANN401 - asn1crypto has no types
    """The algorithm of asn1crypto's SignedDigestAlgorithm. Only within `decoding`."""
    oid = value["algorithm"].dotted
    if oid == _PSS:
        parameters = value["parameters"]
        digest = digest_name(parameters["hash_algorithm"]["algorithm"].dotted)
        generator = parameters["mask_gen_algorithm"]
        if generator["algorithm"].native != "mgf1" or generator["parameters"]["algorithm"].dotted not in DIGESTS:
            raise MalformedData("the mask generation function of the signature is not supported")
        if digest_name(generator["parameters"]["algorithm"].dotted) != digest:
            raise MalformedData("the signature's mask generation function has another digest than the signature")
        return SignatureAlgorithm("pss", digest, int(parameters["salt_length"].native))
    return SignatureAlgorithm(*_SIGNATURES.get(oid, (oid, "")))


@functools.lru_cache(maxsize=_KEPT_KEYS)
def decode_signature_algorithm(encoded: bytes) -> SignatureAlgorithm:
    """The algorithm of an encoded AlgorithmIdentifier."""
    with decoding("the signature algorithm"):
        return read_signature_algorithm(load(algos.SignedDigestAlgorithm, encoded))


@functools.lru_cache(maxsize=_KEPT_KEYS)
def _key(encoded: bytes) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey | None:
    try:
        key = load_der_public_key(encoded)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey) else None


def describe_key(encoded: bytes) -> str:
    """A public key for people, for example `RSA 2048`."""
    key = _key(encoded)
    if key is None:
        return "unknown"
    return f"RSA {key.key_size}" if isinstance(key, rsa.RSAPublicKey) else f"EC {key.curve.name}"


def is_acceptable_key(encoded: bytes) -> bool:
    """Whether the key is of a supported kind, and long enough."""
    key = _key(encoded)
    return key is not None and (isinstance(key, ec.EllipticCurvePublicKey) or key.key_size >= SHORTEST_RSA_KEY)


def is_old_signature_right(public_key: bytes, algorithm: SignatureAlgorithm, signature: bytes, signed: bytes) -> bool:
    """Whether it is a signature as VeriSign's timestamp authority made them until about 2012.

    They hold the bare digest, without the name of its algorithm (PKCS #1, 9.2). Windows accepts them.
    """
    key = _key(public_key)
    if not isinstance(key, rsa.RSAPublicKey) or algorithm.scheme != "rsa" or algorithm.digest not in WEAK_DIGESTS:
        return False
    try:
        held = key.recover_data_from_signature(signature, padding.PKCS1v15(), None)
    except (InvalidSignature, ValueError, UnsupportedAlgorithm):
        return False
    return hmac.compare_digest(held, digest_of(algorithm.digest, [signed]))


def is_signature_right(public_key: bytes, algorithm: SignatureAlgorithm, signature: bytes, signed: bytes) -> bool:
    """Whether the owner of the key made this signature over these bytes."""
    key = _key(public_key)
    digest = _HASHES.get(algorithm.digest)
    if key is None or digest is None:
        return False
    try:
        if isinstance(key, rsa.RSAPublicKey) and algorithm.scheme in ("rsa", "pss"):
            is_pss = algorithm.scheme == "pss"
            scheme = padding.PSS(padding.MGF1(digest), algorithm.salt_length) if is_pss else padding.PKCS1v15()
            key.verify(signature, signed, scheme, digest)
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm.scheme == "ec":
            key.verify(signature, signed, ec.ECDSA(digest))
        else:
            return False
    except (InvalidSignature, ValueError, UnsupportedAlgorithm, OverflowError):
        return False
    return True


LARGEST_CERTIFICATE: Final = 64 * 1024
# Names are shown in messages. The upper bounds of X.520 are far below it.
_LONGEST_NAME: Final = 2048
_KEPT: Final = 2048
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----\s(.*?)-----END \1-----", re.DOTALL)

_BASIC_CONSTRAINTS: Final = "2.5.29.19"
_KEY_USAGE: Final = "2.5.29.15"
_EXTENDED_KEY_USAGE: Final = "2.5.29.37"
_NAME_CONSTRAINTS: Final = "2.5.29.30"
_SUBJECT_KEY_ID: Final = "2.5.29.14"
_AUTHORITY_KEY_ID: Final = "2.5.29.35"
# These restrict nothing here: alternative names, where to find CRLs, and the policies that a certificate is under.
_HARMLESS: Final = frozenset({"2.5.29.17", "2.5.29.18", "2.5.29.31", "2.5.29.32"})


@functools.lru_cache(maxsize=_KEPT)
def read_certificate(der: bytes) -> Certificate:
    """The certificate. Damaged bytes are a MalformedData."""
    if len(der) > LARGEST_CERTIFICATE:
        raise MalformedData(f"a certificate has {len(der)} bytes, at most {LARGEST_CERTIFICATE} are allowed")
    with decoding("a certificate"):
        found = load(x509.Certificate, der)
        signed = found["tbs_certificate"]
        if signed["signature"].dump() != found["signature_algorithm"].dump():
            raise MalformedData("a certificate names two signature algorithms")
        public_key = signed["subject_public_key_info"].dump()
        return Certificate(
            der=der,
            subject=_name(signed["subject"]),
            issuer=_name(signed["issuer"]),
            serial=signed["serial_number"].contents.hex().upper(),
            sha1=hashlib.sha1(der, usedforsecurity=False).hexdigest().upper(),
            sha256=hashlib.sha256(der).hexdigest().upper(),
            not_before=_time(signed["validity"]["not_before"].native),
            not_after=_time(signed["validity"]["not_after"].native),
            digest=read_signature_algorithm(found["signature_algorithm"]).digest,
            key=describe_key(public_key),
            extensions=_extensions(signed["extensions"]),
            public_key=public_key,
            signed=signed.dump(),
            algorithm=found["signature_algorithm"].dump(),
            signature=bytes(found["signature_value"].native),
        )


def read_pem(data: bytes, label: str = "CERTIFICATE") -> list[bytes]:
    """The DER values of one kind in a PEM file; a file that is not PEM is one DER value."""
    blocks = [_decoded(found[2]) for found in _PEM.finditer(data) if found[1].decode() == label]
    if not blocks and b"-----BEGIN" not in data and data:
        return [data]
    return blocks


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error:
        raise MalformedData("a PEM block is not valid base64") from None


def comparable_parts(name: Name) -> tuple[str, ...]:
    """The parts of a name from the country down to the common name, in the form in which they are compared."""
    with decoding("a name"):
        return tuple(part.hashable for part in load(x509.Name, name.encoded).chosen)


def _name(value: Any) -> Name:  # noqa: ANN401 - asn1crypto has no types
    encoded = value.dump()
    if len(encoded) > _LONGEST_NAME:
        raise MalformedData(f"a certificate has a name of {len(encoded)} bytes, at most {_LONGEST_NAME} are allowed")
    return Name(tuple(_attributes(value)), encoded)


def _attributes(value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - asn1crypto has no types
    # Windows shows the most specific part first, and so do people.
    for rdn in reversed(list(value.chosen)):
        for attribute in rdn:
            text = attribute["value"].native
            yield short_type(attribute["type"].dotted), text if isinstance(text, str) else str(text)


def _time(value: Any) -> datetime.datetime:  # noqa: ANN401 - asn1crypto has no types
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        raise MalformedData("a certificate has a time that is not a time")
    return value.astimezone(datetime.UTC)


def _extensions(extensions: Any) -> Extensions:  # noqa: ANN401 - asn1crypto has no types
    found: dict[str, Any] = {}
    unknown = []
    for extension in extensions or ():
        oid = extension["extn_id"].dotted
        if oid in found:
            raise MalformedData(f"a certificate has the extension {oid} twice")
        found[oid] = extension["extn_value"].parsed
        if extension["critical"].native and oid not in _KNOWN:
            unknown.append(oid)
    constraints = found.get(_BASIC_CONSTRAINTS)
    usage = found.get(_KEY_USAGE)
    extended = found.get(_EXTENDED_KEY_USAGE)
    names = found.get(_NAME_CONSTRAINTS)
    authority = found.get(_AUTHORITY_KEY_ID)
    subject_key = found.get(_SUBJECT_KEY_ID)
    permitted = _subtrees(names["permitted_subtrees"]) if names is not None else ()
    return Extensions(
        is_ca=None if constraints is None else bool(constraints["ca"].native),
        longest_path=None if constraints is None else constraints["path_len_constraint"].native,
        key_usage=None if usage is None else frozenset(usage.native),
        extended_usage=None if extended is None else frozenset(item.dotted for item in extended),
        unknown_critical=tuple(unknown),
        permitted_names=permitted or None,
        excluded_names=_subtrees(names["excluded_subtrees"]) if names is not None else (),
        subject_key_id=None if subject_key is None else bytes(subject_key.native),
        authority_key_id=None if authority is None else authority["key_identifier"].native,
    )


_KNOWN: Final = _HARMLESS | {
    *(_BASIC_CONSTRAINTS, _KEY_USAGE, _EXTENDED_KEY_USAGE, _NAME_CONSTRAINTS, _SUBJECT_KEY_ID, _AUTHORITY_KEY_ID),
}


def _subtrees(subtrees: Any) -> tuple[tuple[str, ...], ...]:  # noqa: ANN401 - asn1crypto has no types
    """The names among the subtrees. Those of host names and mail addresses say nothing about a signer."""
    return tuple(
        tuple(part.hashable for part in subtree["base"].chosen.chosen)
        for subtree in subtrees or ()
        if subtree["base"].name == "directory_name"
    )
