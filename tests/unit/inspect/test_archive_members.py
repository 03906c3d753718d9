"""What an archive holds, and which archives are refused."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import stat
import struct
import tarfile
import zipfile
from typing import TYPE_CHECKING, Literal

import pytest

from imagegen.base.errors import VerificationError
from imagegen.fetch.request import ArtifactRequest
from imagegen.inspect import archive, tar_reader
from imagegen.inspect.archive import check_form, read_members

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


Tarred = tuple[str, bytes | tarfile.TarInfo | None]


def tarred(mode: Literal["w", "w:gz"], *members: Tarred) -> bytes:
    """`None` makes a folder; a TarInfo is taken as it is."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as made:
        for name, content in members:
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
            data = content if isinstance(content, bytes) else b""
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


def tar_gz(*members: Tarred) -> bytes:
    return tarred("w:gz", *members)


def plain_tar(*members: Tarred) -> bytes:
    return tarred("w", *members)


def zipped(*members: tuple[str, bytes], mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            made.writestr(info, content)
    return out.getvalue()


def special(kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo("bin/x.exe")
    info.type = kind
    info.linkname = target
    return info


URL = "https://repo.example/artifactory/c/download"


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], dict[str, str]]:
    def from_bytes(data: bytes) -> dict[str, str]:
        file = tmp_path / "artifact"
        file.write_bytes(data)
        form = check_form(ArtifactRequest("containerd", URL, None, "archive", "overrides.containerd_url", URL), file)
        assert form is not None
        return read_members(file, form, "containerd").digests

    return from_bytes


BIG = bytes(range(256)) * 10_000
DEEP = {"bin/a.exe": sha256(b"a"), f"{'deep/' * 40}b": sha256(BIG)}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            tar_gz(("./", None), ("./bin/", None), ("./bin/b.exe", BIG), ("./bin/a.exe", b"a")),
            {"bin/a.exe": sha256(b"a"), "bin/b.exe": sha256(BIG)},
        ),
        (tar_gz(("kubernetes/node/bin/kubelet.exe", b"")), {"kubernetes/node/bin/kubelet.exe": sha256(b"")}),
        (tar_gz((f"{'deep/' * 40}file", b"x")), {f"{'deep/' * 40}file": sha256(b"x")}),
        (zipped(("bin/", b""), ("bin/crictl.exe", BIG)), {"bin/crictl.exe": sha256(BIG)}),
        (zipped(), {}),
        (plain_tar(("bin/", None), ("bin/a.exe", b"a"), (f"{'deep/' * 40}b", BIG)), DEEP),
    ],
    ids=["leading dots", "empty file", "long name", "zip", "empty zip", "plain tar"],
)
def test_every_regular_file_has_its_sha256(
    read: Callable[[bytes], dict[str, str]], data: bytes, expected: dict[str, str]
) -> None:
    found = read(data)
    assert found == expected
    assert list(found) == sorted(found)


@pytest.mark.parametrize("make", [tar_gz, plain_tar, zipped])
@pytest.mark.parametrize(
    "name",
    [
        "/etc/x",
        "../x",
        "a/../../x",
        "a/..",
        "C:/x",
        "c:x",
        "a\\b",
        "a/b:stream",
        "./../x",
        ".//x",
        "a\x01b",
        "//host/share",
    ],
)
def test_a_path_that_leads_elsewhere_is_refused(
    read: Callable[[bytes], dict[str, str]], make: Callable[[tuple[str, bytes]], bytes], name: str
) -> None:
    with pytest.raises(VerificationError, match="containerd holds"):
        read(make((name, b"x")))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (tar_gz(("", special(tarfile.SYMTYPE, "a"))), "a link or a device"),
        (tar_gz(("bin/a", b"a"), ("", special(tarfile.LNKTYPE, "bin/a"))), "a link or a device"),
        (tar_gz(("", special(tarfile.CHRTYPE))), "a link or a device"),
        (tar_gz(("", special(tarfile.FIFOTYPE))), "a link or a device"),
        (tar_gz(("bin/..", None)), "a path outside"),
        (zipped(("link", b"target"), mode=stat.S_IFLNK | 0o777), "a link or a device"),
        (tar_gz(("bin/A.exe", b"1"), ("bin/a.exe", b"2")), "a name that another member has"),
        (tar_gz(("bin/\udcff", b"1")), "the attribute 'hdrcharset'"),
        (tar_gz(("a", b"1"))[:-30], "cannot be read as an archive"),
        (gzip.compress(b"no tar at all" * 100), "cannot be read as an archive"),
        (zipped(("a", b"1" * 100))[:-30], "cannot be read as an archive"),
        (plain_tar(("a", b"1" * 2000))[:1200], "cannot be read as an archive"),
    ],
    # An archive holds the time it was made: it is no name that every worker of a run would give.
    ids=lambda value: "" if isinstance(value, bytes) else None,
)
def test_what_is_not_a_plain_archive_is_refused(
    read: Callable[[bytes], dict[str, str]], data: bytes, says: str
) -> None:
    with pytest.raises(VerificationError, match=says):
        read(data)


@pytest.mark.parametrize("make", [tar_gz, zipped])
@pytest.mark.parametrize(
    "name", ["con", "bin/aux.exe", "COM1 .txt", "nul.tar.gz", "a./b", "a /b", "bin//x", "a/./b", "x?", "x|y"]
)
def test_a_name_that_windows_cannot_have_is_refused(
    read: Callable[[bytes], dict[str, str]], make: Callable[[tuple[str, bytes]], bytes], name: str
) -> None:
    with pytest.raises(VerificationError, match="a name that Windows does not allow"):
        read(make((name, b"x")))


def test_the_root_is_a_folder_and_no_file(read: Callable[[bytes], dict[str, str]]) -> None:
    assert read(tar_gz((".", None), ("a", b"1"))) == {"a": sha256(b"1")}
    with pytest.raises(VerificationError, match="a name that Windows does not allow"):
        read(tar_gz((".", b"x")))


@pytest.mark.parametrize("make", [tar_gz, plain_tar, zipped])
def test_bombs_are_bounded(
    read: Callable[[bytes], dict[str, str]],
    make: Callable[[tuple[str, bytes], tuple[str, bytes]], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = make(("a", BIG), ("b", BIG))
    monkeypatch.setattr(archive, "LIMIT_BYTES", len(BIG) * 2)
    assert len(read(data)) == 2
    monkeypatch.setattr(archive, "LIMIT_BYTES", len(BIG) * 2 - 1)
    with pytest.raises(VerificationError, match="unpacks to more than"):
        read(data)


@pytest.mark.parametrize(
    "data", [tar_gz(*((str(n), b"") for n in range(4))), zipped(*((str(n), b"") for n in range(4)))], ids=["tar", "zip"]
)
def test_members_are_counted(
    read: Callable[[bytes], dict[str, str]], data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LIMIT_MEMBERS", 3)
    with pytest.raises(VerificationError, match="more than 3 members"):
        read(data)


def with_header(name: str, pax: dict[str, str], size: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.pax_headers = pax
    info.size = size
    return info.tobuf(tarfile.PAX_FORMAT)


def test_headers_cannot_fill_the_memory(
    read: Callable[[bytes], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_reader, "_ALL_HEADERS", 64 << 10)
    large = {"comment": "x" * (15 << 10)}
    assert set(read(gzip.compress(b"".join(with_header(f"a{n}", large) for n in range(4)) + bytes(1024), 1))) == {
        *(f"a{n}" for n in range(4))
    }
    with pytest.raises(VerificationError, match="its headers are too large"):
        read(gzip.compress(b"".join(with_header(f"a{n}", large) for n in range(5)) + bytes(1024), 1))


@pytest.mark.parametrize(
    "pax",
    [
        {"GNU.sparse.map": "x,y", "GNU.sparse.realsize": "1"},
        {"GNU.sparse.size": "zz"},
        {"GNU.sparse.realsize": "zz"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"},
    ],
    ids=["map", "size", "real size", "no map"],
)
def test_a_nonsense_header_is_refused(read: Callable[[bytes], dict[str, str]], pax: dict[str, str]) -> None:
    with pytest.raises(VerificationError, match="cannot be read as an archive"):
        read(with_header("a", pax, 512) + b"x" * 512 + bytes(1024))


@pytest.mark.parametrize("make", [tar_gz, plain_tar, zipped])
def test_a_path_is_no_longer_than_a_lock_can_hold(
    read: Callable[[bytes], dict[str, str]], make: Callable[[tuple[str, bytes]], bytes]
) -> None:
    longest = "/".join(["a" * 127] * 8)
    assert [*read(make((longest + "b", b"1")))] == [longest + "b"]
    with pytest.raises(VerificationError, match="a path of more than 1024 characters"):
        read(make((longest + "bb", b"1")))


def test_a_directory_that_lists_a_million_members_is_not_read(read: Callable[[bytes], dict[str, str]]) -> None:
    """Only its end says how large it is: an object of each would fill the memory."""
    listed = struct.pack("<4s42s1s", b"PK\x01\x02", bytes(42), b"a") * 100_001
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 100_001, 100_001, len(listed), 4)
    large += struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + len(listed), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(listed), 4, 0)
    with pytest.raises(VerificationError, match="more than 100000 members"):
        read(b"PK\x03\x04" + listed + large + end)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 17 << 20, 4, 0)
    with pytest.raises(VerificationError, match="its list of members is too large"):
        read(b"PK\x03\x04" + bytes(17 << 20) + end)


def test_a_name_that_is_no_unicode_is_refused(read: Callable[[bytes], dict[str, str]]) -> None:
    data = zipped(("\u00e4.exe", b"1")).replace("\u00e4".encode(), b"\xff\xfe")
    with pytest.raises(VerificationError, match="cannot be read as an archive"):
        read(data)


def test_an_encrypted_member_is_refused(read: Callable[[bytes], dict[str, str]]) -> None:
    data = bytearray(zipped(("a.exe", b"1")))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(VerificationError, match=r"'a\.exe' is encrypted"):
        read(bytes(data))


@pytest.mark.parametrize("make", [tar_gz, plain_tar, zipped])
def test_whatever_bytes_are_changed_an_archive_is_read_or_refused(
    read: Callable[[bytes], dict[str, str]], make: Callable[[tuple[str, bytes], tuple[str, bytes]], bytes]
) -> None:
    choose, data = random.Random(14), make(("a/b.exe", b"1" * 600), ("c.txt", b"2"))  # noqa: S311 - no secret
    refused = 0
    for _ in range(150):
        changed = bytearray(data)
        for _ in range(choose.randint(1, 3)):
            changed[choose.randrange(4 if make is not plain_tar else 0, len(data))] = choose.randrange(256)
        # The first bytes say whether it is an archive at all.
        if make is plain_tar:
            changed[257:262] = b"ustar"
        try:
            read(bytes(changed))
        except VerificationError:
            refused += 1
    assert refused > 10


def test_a_name_that_announces_gigabytes_is_not_read(read: Callable[[bytes], dict[str, str]]) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    header.size = 64 << 20
    data = gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(64 << 20), 1)
    with pytest.raises(VerificationError, match="its headers are too large"):
        read(data)
