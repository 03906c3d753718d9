"""The certificates that a machine's creator gave it: what is in their PFX, and by what their keys are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.rehearsal.boot.model import GivenCertificate

# A multiple of 3, so that its base64 has whole letters.
_PIECE: Final = 24


def find_thumbprint(certificate: GivenCertificate) -> str:
    _, found, _ = pkcs12.load_key_and_certificates(certificate.pfx, None)
    if found is None:
        raise ValueError(f"the PFX {certificate.name} has no certificate")
    # Clouds and Windows name certificates by this digest.
    return found.fingerprint(hashes.SHA1()).hex().upper()  # noqa: S303


def pieces(certificate: GivenCertificate) -> Iterator[bytes]:
    """Bytes of the private key by which it is known in a file, which a PFX without a password has as they are.

    Base64 may be in lines of 64 letters: of two pieces side by side, one is not broken.
    """
    key, _, _ = pkcs12.load_key_and_certificates(certificate.pfx, None)
    if key is not None:
        data = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        middle = len(data) // 2
        yield from (data[start : start + _PIECE] for start in (middle, middle + _PIECE))
