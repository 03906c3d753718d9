"""Makes a `Trust`: which roots, certificates and CRLs there are, and what time it is.

The public roots are Microsoft's, with what the list says about each. An operator's own roots replace them for signing
code, because whoever gives a list means that list; `public_roots=True` adds them to it. For timestamps the public roots
are trusted in any case: a timestamp authority says when a signature was made, and never who may sign.
"""

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Final

from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import OWN_ROOTS, Certificate, SignerStrength, Trust, TrustedRoot
from imagegen.authenticode.revocation import read_revocation_lists
from imagegen.authenticode.root_list import read_public_roots
from imagegen.authenticode.usages import TIME_STAMPING
from imagegen.base.lines import counted

LARGEST_BUNDLE: Final = 16 * 1024 * 1024
_MOST_CERTIFICATES: Final = 5_000


def load_trust(
    *,
    now: datetime.datetime,
    roots: Iterable[bytes] = (),
    intermediates: Iterable[bytes] = (),
    crls: Iterable[bytes] = (),
    public_roots: bool | None = None,
    strength: SignerStrength | None = None,
) -> Trust:
    """What to trust at the time `now`. `roots`, `intermediates` and `crls` are the contents of PEM or DER files.

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
        intermediates=tuple(certificate for data in intermediates for certificate in _read(data)),
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
