"""The signed files that are kept, and short ways to judge bytes."""

from __future__ import annotations

import functools
import io
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.authenticode.trust import load_trust
from imagegen.authenticode.verify import verify
from tests.authenticode.pki import NOW, Identity, pki

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from imagegen.authenticode.model import Catalogue, SignerStrength, Trust, Verification

FIXTURES = Path(__file__).with_name("fixtures")


@functools.cache
def fixture(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


@functools.cache
def fixture_trust(now: datetime.datetime = NOW, *, clock: bool = True) -> Trust:
    """What trusts the PKI that signed the fixtures."""
    roots = [fixture("root.pem"), *([fixture("clock-root.pem")] if clock else [])]
    return load_trust(now=now, roots=roots, public_roots=False)


def trust(
    *roots: Identity,
    now: datetime.datetime = NOW,
    crls: Sequence[bytes] = (),
    strength: SignerStrength | None = None,
) -> Trust:
    """What trusts these roots, or else those of the PKI that most tests use."""
    chosen = roots or (pki().root, pki().clock_root)
    return load_trust(
        now=now,
        roots=[root.pem for root in chosen],
        crls=crls,
        public_roots=False,
        strength=strength,
    )


def judge(data: bytes, name: str, found: Trust | None = None, catalogues: Sequence[Catalogue] = ()) -> Verification:
    """The verdict on bytes."""
    return verify(io.BytesIO(data), name, found or trust(), catalogues)


def changed(data: bytes, offset: int, value: int | None = None) -> bytes:
    """The bytes with another one at the offset."""
    copy = bytearray(data)
    copy[offset] = copy[offset] ^ 0x01 if value is None else value
    return bytes(copy)
