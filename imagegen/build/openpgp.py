"""Verifies HashiCorp's OpenPGP signatures of files, with Sequoia (the package pysequoia). Pure."""

import pysequoia
from pysequoia.packet import Packet, PacketPile, SignatureType, Tag


class SignatureError(Exception):
    """The bytes are not a signature or not a key, or the signature is not valid."""


def read_certificate(armored: bytes) -> pysequoia.Cert:
    """The public key with its subkeys. Only statements that the primary key has signed count."""
    try:
        return pysequoia.Cert.from_bytes(armored)
    except RuntimeError as error:
        raise SignatureError(f"it is not an OpenPGP key: {_first_line(error)}") from error


def verify(data: bytes, signature: bytes, certificate: pysequoia.Cert) -> None:
    """SignatureError unless a key of the certificate that was valid at the time has signed `data`."""
    try:
        faults = [_find_fault(data, packet, certificate) for packet in PacketPile.from_bytes(signature)]
    except (RuntimeError, OverflowError) as error:
        # OverflowError: the number of the signature has more bits than its length can say.
        raise SignatureError(f"it is not an OpenPGP signature: {_first_line(error)}") from error
    if "" not in faults:
        raise SignatureError("; ".join(faults) or "it is empty")


def _find_fault(data: bytes, packet: Packet, certificate: pysequoia.Cert) -> str:
    if packet.tag != Tag.Signature or packet.body[:1] + packet.body[2:3] != b"\4\1":
        return "it is not a detached RSA signature of version 4"
    signature = pysequoia.Sig.from_bytes(_with_exact_length(packet.body))
    if signature.signature_type != SignatureType.Binary:
        return "it is not a signature of a file"
    try:
        pysequoia.verify(data, lambda _: [certificate], signature=signature)
    except RuntimeError:
        issuer = signature.issuer_fingerprint or signature.issuer_key_id or "without a name"
        if any((key.fingerprint or "").endswith(issuer) for key in PacketPile.from_bytes(bytes(certificate))):
            return "it does not match the file, or its key was not valid when the signature was made"
        return f"it was made by the key {issuer}, not by {certificate.fingerprint}"
    return ""


def _with_exact_length(body: bytes) -> bytes:
    """The signature with the exact length of its number, which is the last field of its packet.

    HashiCorp's tool counts the leading zero bits of the number in its length. Sequoia rejects that.
    """
    start = 4
    for _ in ("signed fields", "unsigned fields"):
        start += 2 + int.from_bytes(body[start : start + 2])
    start += 2  # the first octets of the digest
    length = (int.from_bytes(body[start : start + 2]) + 7) // 8
    number = body[start + 2 : start + 2 + length].lstrip(b"\0")
    exact = body[:start] + int.from_bytes(number).bit_length().to_bytes(2) + number
    return b"\xc2\xff" + len(exact).to_bytes(4) + exact


def _first_line(error: Exception) -> str:
    # A backtrace follows where RUST_BACKTRACE is set.
    return str(error).partition("\n")[0]
