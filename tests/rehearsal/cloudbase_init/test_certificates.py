"""cloudbase-init's calls of CryptoAPI: its own names, their answers, and the stores of the machine afterwards."""

from __future__ import annotations

import base64
import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from imagegen.rehearsal.cloudbase_init.certificates import CertificateCalls
from imagegen.rehearsal.cloudbase_init.versions import PACKAGE
from imagegen.rehearsal.machine.certificates import MY, Certificate
from tests.certificates_support import make
from tests.rehearsal.cloudbase_init.test_interface import list_methods, own_methods, read_class

if TYPE_CHECKING:
    from tests.rehearsal.cloudbase_init.conftest import Calls

# Of plugins that the shipped configuration does not list: it imports the certificates of users for WinRM.
_REFUSED = {"import_cert"}


def _encrypt(data: bytes, certificate: x509.Certificate) -> str:
    message = (
        pkcs7.PKCS7EnvelopeBuilder()
        .set_data(data)
        .add_recipient(certificate)
        .set_content_encryption_algorithm(algorithms.AES128)
        .encrypt(Encoding.DER, [pkcs7.PKCS7Options.Binary])
    )
    return base64.encodebytes(message).decode()


def _create(calls: Calls, *where: object) -> tuple[str, x509.Certificate]:
    thumbprint, text = calls("x509_create_self_signed_cert", "CN=agent", 10, *where)
    return thumbprint, x509.load_der_x509_certificate(base64.b64decode(text))


def compare_methods(package: Path) -> None:
    """The model's calls are those of the cloudbase-init in a folder, but for those that are refused."""
    module = package / "utils" / "windows" / "x509.py"
    theirs = list_methods(read_class(module, "CryptoAPICertManager"), {"STORE_NAME_MY": "My"})
    own = own_methods(CertificateCalls)
    assert own == {name: parameters for name, parameters in theirs.items() if name not in _REFUSED}
    assert theirs.keys() - own.keys() == _REFUSED


def test_each_method_is_answered_with_the_same_parameters_or_refused() -> None:
    compare_methods(Path(str(importlib.metadata.distribution(PACKAGE).locate_file("cloudbaseinit"))))


def test_a_new_certificate_is_in_the_store_with_its_key(calls: Calls) -> None:
    thumbprint, certificate = _create(calls)
    found = calls.machine.certificates.find(thumbprint)
    assert found is not None
    assert (found.data, bool(found.key)) == (certificate.public_bytes(Encoding.DER), True)
    assert thumbprint == certificate.fingerprint(hashes.SHA1()).hex()  # noqa: S303 - as Windows names certificates
    assert certificate.subject.rfc4514_string() == certificate.issuer.rfc4514_string() == "CN=agent"
    assert certificate.not_valid_after_utc.year - certificate.not_valid_before_utc.year in (9, 10)


def test_its_text_has_lines_as_windows_breaks_them(calls: Calls) -> None:
    _, text = calls("x509_create_self_signed_cert", "CN=agent")
    *lines, end = text.split("\r\n")
    assert ({len(line) for line in lines[:-1]}, end) == ({64}, "")


def test_only_its_key_reads_what_was_encrypted_for_it(calls: Calls) -> None:
    thumbprint, certificate = _create(calls)
    other, _ = _create(calls)
    message = _encrypt(b"a\r\n\x00", certificate)
    assert calls("x509_decode_pkcs7_base64_blob", message, thumbprint) == b"a\r\n\x00"
    assert calls("x509_decode_pkcs7_base64_blob", message.replace("\n", "\r\n"), thumbprint) == b"a\r\n\x00"
    found = calls.answer("x509_decode_pkcs7_base64_blob", message, other)
    assert found == {"kind": "refused", "error": "CryptoAPI error: 0x8009200c"}


def test_a_deleted_certificate_reads_nothing(calls: Calls) -> None:
    before = calls.machine.certificates.thumbprints()
    thumbprint, certificate = _create(calls)
    calls("x509_delete_certificate_from_store", thumbprint)
    assert calls.machine.certificates.thumbprints() == before
    found = calls.answer("x509_decode_pkcs7_base64_blob", _encrypt(b"a", certificate), thumbprint)
    assert found == {"kind": "refused", "error": "CryptoAPI error: 0x80092004"}


@pytest.mark.parametrize(
    ("where", "store"),
    [
        ((), MY),
        ((True, "Root"), r"LocalMachine\Root"),
        ((True, "my"), MY),
        ((False, "My"), r"CurrentUser of SYSTEM\My"),
    ],
)
def test_a_pfx_is_imported_with_its_key_into_the_store_that_is_named(
    calls: Calls, where: tuple[object, ...], store: str
) -> None:
    made = make("web")
    calls("x509_import_pfx_certificate", made.pfx(), None, *where)
    stores = calls.machine.certificates
    found = stores.find(made.thumbprint, store)
    assert found is not None
    assert (found.data, bool(found.key)) == (made.der, True)
    assert [name for name in stores if made.thumbprint in stores.thumbprints(name)] == [store]


def test_a_pfx_with_a_password_needs_it(calls: Calls) -> None:
    made = make("web")
    found = calls.answer("x509_import_pfx_certificate", made.pfx("secret"), "other")
    assert found == {"kind": "refused", "error": "CryptoAPI error: 0x56"}
    calls("x509_import_pfx_certificate", made.pfx("secret"), "secret")
    assert made.thumbprint in calls.machine.certificates.thumbprints()
    assert "secret" not in repr(calls.machine.certificates.find(made.thumbprint))


REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "no base64": (("decode_pkcs7_base64_blob", "!", "ab" * 20), "0xd"),
    "no such certificate": (("decode_pkcs7_base64_blob", "AAAA", "ab" * 20), "0x80092004"),
    "no message": (("decode_pkcs7_base64_blob", "AAAA", "cd" * 20), "0x8009310b"),
    "no key": (("decode_pkcs7_base64_blob", "AAAA", "ef" * 20), "0x8009200c"),
    "no store": (("decode_pkcs7_base64_blob", "AAAA", "cd" * 20, True, "Own"), "0x2"),
    "nothing to delete": (("delete_certificate_from_store", "ab" * 20), "0x80092004"),
    "no store to delete from": (("delete_certificate_from_store", "cd" * 20, False), "0x2"),
    "no pfx": (("import_pfx_certificate", b"a"), "0x8009310b"),
}


@pytest.mark.parametrize(("call", "number"), REFUSED.values(), ids=REFUSED.keys())
def test_what_windows_refuses_has_its_number(calls: Calls, call: tuple[Any, ...], number: str) -> None:
    calls("x509_import_pfx_certificate", make("web").pfx())
    known = calls.machine.certificates.find(make("web").thumbprint)
    assert known is not None
    calls.machine.certificates.add(Certificate("CD" * 20, known.data, known.key))
    calls.machine.certificates.add(Certificate("EF" * 20, known.data))
    before = calls.machine.certificates.thumbprints()
    found = calls.answer(f"x509_{call[0]}", *call[1:])
    assert found == {"kind": "refused", "error": f"CryptoAPI error: {number}"}
    assert (calls.machine.certificates.thumbprints(), calls.around.unknown) == (before, [])


@pytest.mark.parametrize("name", sorted(_REFUSED | {"_find_certificate_in_store"}))
def test_what_is_refused_fails_the_boot_by_name(calls: Calls, name: str) -> None:
    found = calls.answer(f"x509_{name}", "a")
    assert (found["kind"], calls.around.unknown) == ("unknown", [found["error"]])
    assert name in found["error"]
