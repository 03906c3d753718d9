"""Each way to tamper with a signed file has its own verdict, and a reason that names what was found."""

from __future__ import annotations

import base64
import io
import struct
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.model import Verdict
from imagegen.authenticode.msi import CompoundFile
from tests.authenticode.signing import put_into_pe, signature_of, table, table_entry
from tests.authenticode.support import changed, fixture, fixture_trust, judge

if TYPE_CHECKING:
    from collections.abc import Callable

ALTERED, UNSIGNED = Verdict.ALTERED, Verdict.UNSIGNED
PE, MSI, PS1 = "stamped.exe", "stamped.msi", "signed.ps1"


def _pe() -> bytes:
    return fixture(PE)


def _without_table(data: bytes) -> bytes:
    start, _ = table(data)
    stripped = bytearray(data[:start])
    struct.pack_into("<II", stripped, table_entry(data), 0, 0)
    return bytes(stripped)


def _with_table(address: int, size: int) -> bytes:
    data = bytearray(_pe())
    struct.pack_into("<II", data, table_entry(data), address, size)
    return bytes(data)


def _with_entry(length: int, revision: int = 0x0200, kind: int = 2) -> bytes:
    data = bytearray(_pe())
    struct.pack_into("<IHH", data, table(data)[0], length, revision, kind)
    return bytes(data)


def _padded(padding: bytes) -> bytes:
    """A certificate table with bytes behind its signature."""
    return put_into_pe(_without_table(_pe()), signature_of(_pe()) + padding)


def _surplus() -> int:
    """What follows the signature if eight bytes are put there: the table is padded besides."""
    return 8 + -len(signature_of(_pe())) % 8


def _two_entries(second: bytes) -> bytes:
    data = _pe()
    start, size = table(data)
    more = struct.pack("<IHH", 8 + len(second), 0x0200, 2) + second + bytes(-len(second) % 8)
    return _with_table(start, size + len(more)) + more


def _section(length: int) -> bytes:
    """The last section made longer in its header."""
    data = bytearray(_pe())
    start = struct.unpack_from("<I", data, 60)[0]
    count, optional = struct.unpack_from("<H12xH", data, start + 6)
    struct.pack_into("<I", data, start + 24 + optional + 40 * (count - 1) + 16, length)
    return bytes(data)


def _program_section() -> int:
    data = _pe()
    start = struct.unpack_from("<I", data, 60)[0]
    optional = struct.unpack_from("<H", data, start + 20)[0]
    return int(struct.unpack_from("<I", data, start + 24 + optional + 20)[0])


PROGRAMS: dict[str, tuple[Callable[[], bytes], Verdict, str]] = {
    "a byte of the DOS header": (lambda: changed(_pe(), 40), ALTERED, "its SHA-256 digest differs"),
    "a byte of the PE header": (lambda: changed(_pe(), _pe().index(b"PE\0\0") + 8), ALTERED, "SHA-256 digest differs"),
    "a byte of a section": (lambda: changed(_pe(), _program_section()), ALTERED, "its SHA-256 digest differs"),
    "the signed digest": (
        lambda: changed(_pe(), _digest_in_signature()),
        ALTERED,
        "its SHA-256 digest differs",
    ),
    "the signature's value": (lambda: changed(_pe(), _signature_value()), ALTERED, 'not one by "Example Inc"'),
    "the last byte": (
        lambda: _padded(bytes(7) + b"\1"),
        ALTERED,
        f"the signature is followed by {_surplus()} bytes in the certificate table",
    ),
    "a byte after the table": (lambda: _pe() + b"\0", ALTERED, "the certificate table is followed by 1 byte"),
    "a program after the table": (lambda: _pe() + _pe(), ALTERED, f"is followed by {len(_pe())} bytes"),
    "a cut table": (lambda: _pe()[:-8], ALTERED, "points to a certificate table that is not there"),
    "a table in the headers": (lambda: _with_table(0, len(_pe())), ALTERED, "is not there"),
    "a table over the headers": (lambda: _with_table(64, len(_pe()) - 64), ALTERED, "overlaps with the headers"),
    "a table without a size": (lambda: _with_table(table(_pe())[0], 0), ALTERED, "that is not there"),
    "a table that grew backwards": (
        lambda: _with_table(table(_pe())[0] - 512, table(_pe())[1] + 512),
        ALTERED,
        "a section overlaps with the certificate table",
    ),
    "a section over the table": (lambda: _section(0x10000), ALTERED, "a section overlaps with the certificate table"),
    "an entry that is too long": (lambda: _with_entry(0x10000), ALTERED, "an entry of the certificate table has 65536"),
    "an entry without content": (lambda: _with_entry(8), ALTERED, "an entry of the certificate table has 8 bytes"),
    "an entry of another kind": (lambda: _with_entry(table(_pe())[1], kind=1), ALTERED, "is not a signature"),
    "an entry of another revision": (lambda: _with_entry(table(_pe())[1], 0x0300), ALTERED, "is not a signature"),
    "a payload in the padding": (
        lambda: _padded(b"payload!"),
        ALTERED,
        f"the signature is followed by {_surplus()} bytes in the certificate table",
    ),
    "a payload as a second entry": (lambda: _two_entries(b"payload!"), ALTERED, "followed by 16 bytes: only one"),
    "a second signature": (lambda: _two_entries(signature_of(_pe())), ALTERED, "the first entry of the certificate"),
    "another program's signature": (
        lambda: put_into_pe(changed(fixture("program.exe"), _program_section()), signature_of(_pe())),
        ALTERED,
        "its SHA-256 digest differs",
    ),
    "an MSI's signature": (
        lambda: put_into_pe(_without_table(_pe()), _msi_signature()),
        ALTERED,
        "the signature is not one for a PE",
    ),
    "the signature taken away": (lambda: _without_table(_pe()), UNSIGNED, "has no signature"),
    "only the header's entry taken away": (lambda: _with_table(0, 0), UNSIGNED, "has no signature"),
}


def _digest_in_signature() -> int:
    # The digest is the last thing in the content, before the certificates.
    data = _pe()
    start, _ = table(data)
    oid = bytes.fromhex("0609608648016503040201")
    first = data.index(oid, start)
    return data.index(oid, first + 1) + len(oid) + 4


def _signature_value() -> int:
    # RSA 2048: an OCTET STRING of 256 bytes, before the timestamp.
    data = _pe()
    return data.index(bytes.fromhex("04820100"), table(data)[0]) + 20


def _storage() -> CompoundFile:
    return CompoundFile(io.BytesIO(fixture(MSI)))


def _stream(name: str) -> tuple[int, int]:
    """Where a stream of the MSI begins and ends, if it is in one piece."""
    storage = _storage()
    (entry,) = [entry for entry in storage.root.children if entry.name == name.encode("utf-16-le")]
    return next(storage.ranges(entry))


def _msi_signature() -> bytes:
    storage = _storage()
    (entry,) = [entry for entry in storage.root.children if entry.name == "\5DigitalSignature".encode("utf-16-le")]
    return storage.read(entry, 100_000, "it")


def _any_stream() -> int:
    """A byte of the largest stream that is signed."""
    storage = _storage()
    signature = "\5DigitalSignature".encode("utf-16-le")
    entry = max((item for item in storage.root.children if item.name != signature), key=lambda item: item.size)
    return next(storage.ranges(entry))[0]


def _entry(name: str) -> int:
    """Where the directory of the MSI has an entry."""
    return fixture(MSI).index(name.encode("utf-16-le"))


def _msi_without(name: str) -> bytes:
    """The MSI, with a stream of its signature renamed, so that it is one like any other."""
    return changed(fixture(MSI), _entry(name) + 2, ord("X"))


PACKAGES: dict[str, tuple[Callable[[], bytes], Verdict, str]] = {
    "a byte of a stream": (lambda: changed(fixture(MSI), _any_stream()), ALTERED, "its SHA-256 digest differs"),
    "a byte of the signature": (
        lambda: changed(fixture(MSI), _stream("\5DigitalSignature")[0] + 1),
        ALTERED,
        "the signature is damaged",
    ),
    "the time of a stream": (
        lambda: changed(fixture(MSI), _entry("\5SummaryInformation") + 108),
        ALTERED,
        "the names, sizes or times of its streams differ",
    ),
    "the name of a stream": (
        lambda: changed(fixture(MSI), _entry("\5SummaryInformation") + 2, ord("X")),
        ALTERED,
        "the names, sizes or times of its streams differ",
    ),
    "the extended signature": (
        lambda: changed(fixture(MSI), _stream("\5MsiDigitalSignatureEx")[0]),
        ALTERED,
        "the names, sizes or times of its streams differ",
    ),
    "the extended signature taken away": (
        lambda: _msi_without("\5MsiDigitalSignatureEx"),
        ALTERED,
        "its SHA-256 digest differs",
    ),
    "bytes after the last sector": (
        lambda: fixture(MSI) + b"PK\3\4" * 8,
        ALTERED,
        "the last sector in use is followed by 32 bytes",
    ),
    "sectors after the last one": (
        lambda: fixture(MSI) + bytes(1024),
        ALTERED,
        "the last sector in use is followed by 1024 bytes",
    ),
    "a cut file": (lambda: fixture(MSI)[:-512], ALTERED, "its table of sectors is damaged"),
    "a damaged header": (lambda: changed(fixture(MSI), 30), ALTERED, "header"),
    "the signature taken away": (lambda: _msi_without("\5DigitalSignature"), UNSIGNED, "has no signature"),
}


def _script() -> bytes:
    return fixture(PS1)


def _block(lines: Callable[[list[bytes]], list[bytes]]) -> bytes:
    """The script with the lines of its signature block changed."""
    text, _, block = _script().partition(b"\r\n# SIG # Begin signature block\r\n")
    return text + b"\r\n# SIG # Begin signature block\r\n" + b"\r\n".join(lines(block.split(b"\r\n")))


def _other_signature() -> bytes:
    text, _, _ = _script().partition(b"\r\n# SIG")
    _, mark, block = fixture("signed-wide.ps1").decode("utf-16-le").encode().partition(b"\r\n# SIG")
    return text + mark + block


SCRIPTS: dict[str, tuple[Callable[[], bytes], Verdict, str]] = {
    "a letter": (lambda: _script().replace(b"Hello", b"hello"), ALTERED, "its SHA-256 digest differs"),
    "a line before the block": (
        lambda: _script().replace(b"\r\n# SIG # B", b"\r\nrm\r\n# SIG # B"),
        ALTERED,
        "differs",
    ),
    "a line after the block": (lambda: _script() + b"rm\r\n", ALTERED, "is followed by 4 characters"),
    "a blank after the block": (lambda: _script() + b" ", ALTERED, "is followed by 1 character"),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + _script(), ALTERED, "its SHA-256 digest differs"),
    "another encoding": (
        lambda: b"\xff\xfe" + _script().decode().encode("utf-16-le"),
        ALTERED,
        "its SHA-256 digest differs",
    ),
    "the line ends": (
        lambda: _script().replace(b"\r\n", b"\n"),
        ALTERED,
        "does not begin on a line of its own after a Windows line end",
    ),
    "the line ends of the text only": (
        lambda: _script().replace(b"'\r\nexit", b"'\nexit"),
        ALTERED,
        "its SHA-256 digest differs",
    ),
    "the line ends of the block only": (
        lambda: _script()[:32] + _script()[32:].replace(b"\r\n", b"\n"),
        ALTERED,
        "has no end, or its line ends were changed",
    ),
    "a block without an end": (lambda: _script().replace(b"# SIG # End", b"# SIG # end"), ALTERED, "has no end"),
    "a line of code in the block": (lambda: _block(lambda rows: [rows[0], b"rm", *rows[1:]]), ALTERED, "not a comment"),
    "a blank line in the block": (lambda: _block(lambda rows: [rows[0], b"", *rows[1:]]), ALTERED, "not a comment"),
    "a short line in the block": (
        lambda: _block(lambda rows: [rows[0][:-4], *rows[1:]]),
        ALTERED,
        "does not have 64 characters",
    ),
    "lines of the block swapped": (lambda: _block(lambda rows: [rows[1], rows[0], *rows[2:]]), ALTERED, "damaged"),
    "a character that is not base64": (
        lambda: _block(lambda rows: [rows[0][:-1] + b"-", *rows[1:]]),
        ALTERED,
        "not valid base64",
    ),
    "another script's signature": (_other_signature, ALTERED, "its SHA-256 digest differs"),
    "the block taken away": (lambda: _script().partition(b"\r\n# SIG")[0], UNSIGNED, "has no signature"),
}


def _check(make: Callable[[], bytes], name: str, verdict: Verdict, reason: str) -> None:
    found = judge(make(), name, fixture_trust())
    assert (found.verdict, reason in found.reason) == (verdict, True), found.reason


@pytest.mark.parametrize(("make", "verdict", "reason"), PROGRAMS.values(), ids=PROGRAMS)
def test_program(make: Callable[[], bytes], verdict: Verdict, reason: str) -> None:
    _check(make, PE, verdict, reason)


@pytest.mark.parametrize(("make", "verdict", "reason"), PACKAGES.values(), ids=PACKAGES)
def test_package(make: Callable[[], bytes], verdict: Verdict, reason: str) -> None:
    _check(make, MSI, verdict, reason)


@pytest.mark.parametrize(("make", "verdict", "reason"), SCRIPTS.values(), ids=SCRIPTS)
def test_script(make: Callable[[], bytes], verdict: Verdict, reason: str) -> None:
    _check(make, PS1, verdict, reason)


def test_the_checksum_and_padding_are_not_signed() -> None:
    """What the lock's sha256 protects alone."""
    data = _pe()
    optional = struct.unpack_from("<I", data, 60)[0] + 24
    assert judge(changed(data, optional + 64), PE, fixture_trust()).verdict is Verdict.VALID
    assert judge(_padded(bytes(16)), PE, fixture_trust()).verdict is Verdict.VALID


def test_a_file_that_was_signed_again_is_valid() -> None:
    """The same bytes, so that the cases above fail for their faults."""
    assert put_into_pe(_without_table(_pe()), signature_of(_pe())) == _pe()
    assert base64.b64encode(_msi_signature())[:4] == b"MIIS"
