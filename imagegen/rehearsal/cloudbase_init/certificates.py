"""cloudbase-init's calls of Windows' CryptoAPI, on the certificate stores of the model machine.

The methods have the names and the meaning of its `CryptoAPICertManager`, and the errors Windows' own numbers. One that
is missing here fails the boot by name.

On Windows the key of a certificate that is deleted stays in Windows' own store of keys, which is closed to Users. Here
it goes with the certificate. No key is ever on the machine's disk.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    pkcs7,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from imagegen.rehearsal.boot.model import UnknownCommandError
from imagegen.rehearsal.machine.certificates import Certificate
from imagegen.rehearsal.machine.refusal import RefusedByWindows

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from imagegen.rehearsal.cloudbase_init.system import Surroundings

_MY: Final = "My"
_KEY_BITS: Final = 2048
_BEFORE: Final = datetime.timedelta(days=1)
_AFTER: Final = datetime.timedelta(days=3650)
# As CryptBinaryToString breaks base64.
_LINE: Final = 64
_NO_SUCH_STORE: Final = 0x2
_NO_BASE64: Final = 0xD
_WRONG_PASSWORD: Final = 0x56
_NOT_FOUND: Final = 0x80092004
_NO_DECRYPT_CERTIFICATE: Final = 0x8009200C
_BAD_ASN1: Final = 0x8009310B


class CertificateCalls:
    """The calls of cloudbase-init's `CryptoAPICertManager`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._stores = around.machine.certificates

    def create_self_signed_cert(
        self,
        subject: str,
        validity_years: int = 10,  # noqa: ARG002 - cloudbase-init itself ignores it
        machine_keyset: bool = True,
        store_name: str = _MY,
    ) -> list[str]:
        """Make a key and a certificate for it. Its thumbprint, and its DER as base64 in lines."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS)
        name = x509.Name.from_rfc4514_string(subject)
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BEFORE)
            .not_valid_after(now + _AFTER)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(key, hashes.SHA256())
        )
        certificate = _keep(made, key)
        self._stores.add(certificate, self._store(machine_keyset, store_name))
        text = base64.b64encode(certificate.data).decode("ascii")
        lines = "".join(f"{text[start : start + _LINE]}\r\n" for start in range(0, len(text), _LINE))
        return [certificate.thumbprint.lower(), lines]

    def delete_certificate_from_store(
        self, thumbprint_str: str, machine_keyset: bool = True, store_name: str = _MY
    ) -> None:
        found = self._find(thumbprint_str, machine_keyset, store_name)
        self._stores.remove(found.thumbprint, self._store(machine_keyset, store_name))

    def decode_pkcs7_base64_blob(
        self, data: str, thumbprint_str: str, machine_keyset: bool = True, store_name: str = _MY
    ) -> bytes:
        """What somebody encrypted for the certificate with this thumbprint."""
        try:
            message = base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error as error:
            raise _error(_NO_BASE64) from error
        found = self._find(thumbprint_str, machine_keyset, store_name)
        if not found.key:
            raise _error(_NO_DECRYPT_CERTIFICATE)
        key = load_der_private_key(found.key, None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise UnknownCommandError(f"the rehearsal decrypts with RSA keys only, not with {type(key).__name__}")
        try:
            return pkcs7.pkcs7_decrypt_der(message, x509.load_der_x509_certificate(found.data), key, [])
        except UnsupportedAlgorithm as error:
            raise UnknownCommandError(f"the rehearsal cannot decrypt a message: {error}") from error
        except ValueError as error:
            is_other = str(error).startswith("No recipient")
            raise _error(_NO_DECRYPT_CERTIFICATE if is_other else _BAD_ASN1) from error

    def import_pfx_certificate(
        self,
        pfx_data: bytes,
        pfx_password: str | None = None,
        machine_keyset: bool = True,
        store_name: str = _MY,
    ) -> None:
        """Add the first certificate of a PFX with its key. cloudbase-init asks for no other."""
        password = None if pfx_password is None else pfx_password.encode()
        try:
            key, found, _ = pkcs12.load_key_and_certificates(pfx_data, password)
        except ValueError as error:
            # It says "password" where the PFX as such can be read.
            raise _error(_WRONG_PASSWORD if "password" in str(error) else _BAD_ASN1) from error
        if found is None:
            raise _error(_NOT_FOUND)
        self._stores.add(_keep(found, key), self._store(machine_keyset, store_name))

    def _store(self, is_of_machine: bool, name: str) -> str:
        return rf"LocalMachine\{name}" if is_of_machine else rf"CurrentUser of {self._around.user}\{name}"

    def _find(self, thumbprint: str, is_of_machine: bool, name: str) -> Certificate:
        store = self._store(is_of_machine, name)
        if not self._stores.exists(store):
            raise _error(_NO_SUCH_STORE)
        found = self._stores.find(thumbprint, store)
        if found is None:
            raise _error(_NOT_FOUND)
        return found


def _keep(certificate: x509.Certificate, key: PrivateKeyTypes | None) -> Certificate:
    """As a store has it, with its key."""
    secret = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()) if key else b""
    # Windows itself names certificates by this digest.
    thumbprint = certificate.fingerprint(hashes.SHA1()).hex().upper()  # noqa: S303
    return Certificate(thumbprint, certificate.public_bytes(Encoding.DER), secret)


def _error(number: int) -> RefusedByWindows:
    """As cloudbase-init says the number of Windows' last error."""
    return RefusedByWindows(f"CryptoAPI error: 0x{number:x}")
