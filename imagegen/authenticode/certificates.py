"""Reads X.509 certificates: DER or PEM in, `Certificate` out. Pure."""

import base64
import binascii
import datetime
import functools
import hashlib
import re
from collections.abc import Iterator
from typing import Any, Final

from asn1crypto import x509

from imagegen.authenticode.algorithms import describe_key, read_signature_algorithm
from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import Certificate, Extensions, Name
from imagegen.authenticode.names import short_type

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
