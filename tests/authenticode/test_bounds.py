"""Limits: what hostile files may cost, and what is said about them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import io
import struct
import uuid
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.asn1 import ContentInfo, SignedData, content_of, load
from imagegen.authenticode.cms import PE_IMAGE, SIGNED_DATA, read_signed_data
from imagegen.authenticode.files import PortableExecutable
from imagegen.authenticode.model import FileKind, MalformedData, Verdict
from imagegen.authenticode.msi import CompoundFile, InstallerPackage
from imagegen.authenticode.verify import read_catalogue, verify
from tests.authenticode.compound import Tree, make_compound_file
from tests.authenticode.pki import STAMP, STAMPED, START, Identity, make_crl, make_signer, pki
from tests.authenticode.signing import (
    NESTED,
    Options,
    content_info,
    encoded,
    make_catalogue,
    put_into_pe,
    sign_digest,
    sign_pe,
    signature_of,
    table_entry,
)
from tests.authenticode.support import FIXTURES, changed, fixture, fixture_trust, judge, trust

if TYPE_CHECKING:
    from collections.abc import Callable

V = Verdict
MEBIBYTE = 1024 * 1024
SIGNATURE, EXTENDED = "\5DigitalSignature", "\5MsiDigitalSignatureEx"


class Counting(io.BytesIO):
    """A file that remembers the largest piece that was read."""

    largest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.largest = max(self.largest, len(data))
        return data


def _large_package(size: int) -> bytes:
    return make_compound_file({"cabinet": bytes(size)})


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.exe", sign_pe(fixture("program.exe") + bytes(3 * MEBIBYTE), pki().signer)),
        ("x.msi", _large_package(3 * MEBIBYTE)),
    ],
)
def test_large_files_are_read_in_pieces(name: str, data: bytes) -> None:
    file = Counting(data)
    verify(file, name, trust())
    catalogue = read_catalogue(io.BytesIO(make_catalogue([(PE_IMAGE, "sha256", b"x")], pki().signer)), "x.cat", trust())
    verify(file, name, trust(), [catalogue])
    assert file.largest <= MEBIBYTE


def test_a_table_that_is_too_large_is_refused() -> None:
    data = bytearray(fixture("program.exe") + bytes(17 * MEBIBYTE))
    start = len(fixture("program.exe"))
    struct.pack_into("<II", data, table_entry(data), start, len(data) - start)
    found = judge(bytes(data), "x.exe", trust())
    assert (found.verdict, found.reason) == (
        V.ALTERED,
        "the certificate table has 17825792 bytes, at most 16777216 are allowed",
    )


def test_a_signature_in_a_stream_that_is_too_large_is_refused() -> None:
    storage = CompoundFile(io.BytesIO(_large_package(MEBIBYTE)))
    with pytest.raises(MalformedData, match="it has 1048576 bytes, at most 1048575 are allowed"):
        storage.read(storage.root.children[0], MEBIBYTE - 1, "it")


def _nested(depth: int) -> bytes:
    """A signature in a signature, and so on."""
    digest = PortableExecutable(io.BytesIO(fixture("program.exe"))).digest("sha256")
    signature = sign_digest(PE_IMAGE, digest, pki().signer, Options())
    for _ in range(depth):
        signature = sign_digest(PE_IMAGE, digest, pki().signer, Options(unsigned={NESTED: [signature]}))
    return signature


def test_signatures_are_nested_only_so_deep() -> None:
    found = judge(
        sign_pe(fixture("program.exe"), pki().signer, Options(unsigned={NESTED: [_nested(8)]})), "x.exe", trust()
    )
    assert [signature.is_nested for signature in found.signatures] == [False] + [True] * 4


def test_only_so_many_signatures_are_judged() -> None:
    options = Options(unsigned={NESTED: [_nested(0)] * 40})
    found = judge(sign_pe(fixture("program.exe"), pki().signer, options), "x.exe", trust())
    assert len(found.signatures) == 16


def test_a_nested_signature_that_is_damaged_changes_nothing() -> None:
    """Windows does not look at it."""
    options = Options(unsigned={NESTED: [b"\4\1x"]})
    found = judge(sign_pe(fixture("program.exe"), pki().signer, options), "x.exe", trust())
    assert [signature.verdict for signature in found.signatures] == [V.VALID, V.ALTERED]
    assert found.verdict is V.VALID


def _expired() -> Identity:
    return make_signer(pki().ca, valid=(START, STAMPED))


FIRST: dict[str, tuple[Callable[[], Identity], Options, Verdict, Verdict]] = {
    "a weak one": (lambda: pki().signer, Options(digest="sha1"), V.WEAK_DIGEST, V.VALID),
    "a weak one without a CA": (
        lambda: pki().signer,
        Options(digest="sha1", certificates=[pki().signer]),
        V.UNTRUSTED,
        V.VALID,
    ),
    "a weak one that expired": (_expired, Options(digest="sha1"), V.EXPIRED, V.VALID),
    "a weak one with a bad timestamp": (
        lambda: pki().signer,
        Options(digest="sha1", timestamps=[pki().signer]),
        V.BAD_TIMESTAMP,
        V.VALID,
    ),
    "a weak one of the wrong usage": (
        lambda: make_signer(pki().ca, usages=[STAMP]),
        Options(digest="sha1"),
        V.WRONG_USAGE,
        V.WRONG_USAGE,
    ),
    "a strong one without a CA": (
        lambda: pki().signer,
        Options(certificates=[pki().signer]),
        V.UNTRUSTED,
        V.UNTRUSTED,
    ),
    "a strong one that expired": (_expired, Options(), V.EXPIRED, V.EXPIRED),
}


@pytest.mark.parametrize(("signer", "options", "first", "verdict"), FIRST.values(), ids=FIRST)
def test_a_nested_signature_helps_only_one_for_old_windows(
    signer: Callable[[], Identity], options: Options, first: Verdict, verdict: Verdict
) -> None:
    options = dataclasses.replace(options, unsigned={NESTED: [_nested(0)]})
    found = judge(sign_pe(fixture("program.exe"), signer(), options), "x.exe", trust())
    assert found.first is not None
    assert (found.first.verdict, found.verdict, found.needs_nested) == (first, verdict, verdict is V.VALID)


def test_a_nested_signature_does_not_help_a_file_that_was_altered() -> None:
    options = Options(digest="sha1", unsigned={NESTED: [_nested(0)]})
    first = sign_digest(PE_IMAGE, bytes(20), pki().signer, options)
    found = judge(put_into_pe(fixture("program.exe"), first), "x.exe", trust())
    assert [signature.verdict for signature in found.signatures] == [V.ALTERED, V.VALID]
    assert found.verdict is V.ALTERED


def test_a_nested_signature_does_not_help_a_revoked_one() -> None:
    options = Options(digest="sha1", unsigned={NESTED: [_nested(0)]})
    revoked = make_signer(pki().ca)
    crl = make_crl(pki().ca, [(revoked, STAMPED, None)])
    found = judge(sign_pe(fixture("program.exe"), revoked, options), "x.exe", trust(crls=[crl]))
    assert (found.verdict, found.signatures[1].verdict) == (V.REVOKED, V.VALID)


def test_a_nested_signature_of_another_file_does_not_help() -> None:
    other = sign_digest(PE_IMAGE, bytes(32), pki().signer, Options())
    options = Options(digest="sha1", unsigned={NESTED: [other]})
    found = judge(sign_pe(fixture("program.exe"), pki().signer, options), "x.exe", trust())
    assert (found.verdict, found.signatures[1].verdict) == (V.WEAK_DIGEST, V.ALTERED)


@pytest.mark.parametrize("count", [0, 2])
def test_a_signature_has_one_signer(count: int) -> None:
    data = SignedData.load(content_of(load(ContentInfo, signature_of(fixture("signed.exe")))))
    (signer,) = [info.dump() for info in data["signer_infos"]]
    start, infos = data.dump().rpartition(encoded(0x31, signer))[0], encoded(0x31, signer * count)
    changed_data = content_info(SIGNED_DATA, encoded(0x30, start[4:] + infos))
    with pytest.raises(MalformedData, match=f"it has {count} signers, but must have one"):
        read_signed_data(changed_data)


def test_verdicts_do_not_depend_on_threads() -> None:
    names = sorted(path.name for path in FIXTURES.iterdir() if path.suffix != ".pem") * 8
    alone = {name: judge(fixture(name), name, fixture_trust()) for name in names}
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda name: judge(fixture(name), name, fixture_trust()), names))
    assert found == [alone[name] for name in names]


@pytest.mark.parametrize("version", [3, 4])
def test_an_msi_with_storages_is_digested_in_order(version: int) -> None:
    """Of both forms of compound files: streams by name, in a storage too, and after them the storage's class."""
    tree: Tree = {"b": b"1" * 5000, "a": b"2" * 70, "B": b"", "inner": {"z": b"3" * 9000, "y": b"4"}, "é": b"5" * 4096}
    data = make_compound_file(tree, version)
    order = b"2" * 70 + b"1" * 5000 + b"4" + b"3" * 9000
    # The storage is the last of the rows but the inner ones.
    package = InstallerPackage(io.BytesIO(data))
    inner = next(entry for entry in package._storage.root.children if entry.kind == 1)
    expected = order + inner.class_id + b"5" * 4096 + uuid.UUID(int=1).bytes_le
    assert package.digest("sha256") == hashlib.sha256(expected).digest()


def _signed_package(version: int, *, damage: Callable[[bytes], bytes] = lambda data: data) -> bytes:
    tree: Tree = {"a": b"1" * 5000, "inner": {"b": b"2"}}
    digest = InstallerPackage(io.BytesIO(make_compound_file(dict(tree), version))).digest("sha256")
    signature = sign_digest(InstallerPackage.form, digest, pki().signer, Options())
    return damage(make_compound_file({**tree, SIGNATURE: signature}, version))


@pytest.mark.parametrize("version", [3, 4])
def test_an_msi_with_storages_is_verified(version: int) -> None:
    assert judge(_signed_package(version), "x.msi", trust()).verdict is V.VALID


def test_an_empty_extended_signature_is_refused() -> None:
    digest = InstallerPackage(io.BytesIO(make_compound_file({"a": b"1", EXTENDED: b""}))).digest("sha256")
    signature = sign_digest(InstallerPackage.form, digest, pki().signer, Options())
    found = judge(make_compound_file({"a": b"1", EXTENDED: b"", SIGNATURE: signature}), "x.msi", trust())
    assert (found.verdict, "the names, sizes or times" in found.reason) == (V.ALTERED, True)


def _directory(data: bytes, name: str) -> int:
    # The whole field of the name: a signature may have the bytes of a short name anywhere.
    return data.index(name.encode("utf-16-le").ljust(64, b"\0"))


def _with_word(data: bytes, offset: int, value: int) -> bytes:
    return data[:offset] + struct.pack("<I", value) + data[offset + 4 :]


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a row that leads to itself": (
        lambda data: _with_word(data, _directory(data, "inner") + 68, _row(data, "inner")),
        "its directory is not a tree",
    ),
    "a storage in itself": (
        lambda data: _with_word(data, _directory(data, "inner") + 76, _row(data, "inner")),
        "its directory is not a tree",
    ),
    "a row that is not there": (
        lambda data: _with_word(data, _directory(data, "inner") + 68, 0x1000),
        "its directory is not a tree",
    ),
    "a row that is nothing": (
        lambda data: changed(data, _directory(data, "inner") + 66, 3),
        "an entry that is neither a stream nor a storage",
    ),
    "a name without an end": (
        lambda data: changed(data, _directory(data, "inner") + 64, 66),
        "an entry without a valid name",
    ),
    "a stream of more than the file": (
        lambda data: _with_word(data, _directory(data, "a") + 120, 0x7FFFFFFF),
        "longer than the file",
    ),
    "a stream at the end": (
        lambda data: _with_word(data, _directory(data, "a") + 116, 0x1000),
        "shorter than its size",
    ),
    "a directory without an end": (lambda data: _with_word(data, 48, 0x1000), "its directory is damaged"),
    "no root": (lambda data: changed(data, _directory(data, "Root Entry") + 66, 1), "it has no root entry"),
    "tables that are not there": (lambda data: _with_word(data, 44, 0x1000), "its table of sectors is damaged"),
    "a list of tables without an end": (lambda data: _with_word(data, 68, 0), "its list of tables is damaged"),
    "another order of bytes": (lambda data: changed(data, 28), "its header is not that of a compound file"),
    "another cutoff": (lambda data: _with_word(data, 56, 0), "its header is damaged"),
}


def _row(data: bytes, name: str) -> int:
    return (_directory(data, name) - _directory(data, "Root Entry")) // 128


@pytest.mark.parametrize(("damage", "reason"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_compound_file_is_told(damage: Callable[[bytes], bytes], reason: str) -> None:
    found = judge(_signed_package(3, damage=damage), "x.msi", trust())
    assert (found.kind, found.verdict, reason in found.reason) == (FileKind.MSI, V.ALTERED, True), found.reason


def test_two_streams_of_one_name_are_refused() -> None:
    data = make_compound_file({"aa": b"1", "ab": b"2"})
    double = data.replace("ab".encode("utf-16-le"), "aa".encode("utf-16-le"))
    assert (
        judge(double, "x.msi", trust()).reason == "the file is damaged: its directory has two entries of the same name"
    )
