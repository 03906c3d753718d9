"""What is found in a file: types, digests, versions and signatures, also of the files of an archive."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ImagegenError
from imagegen.inspect import inspect
from imagegen.inspect.inspect import Inspection, inspect_file
from tests.authenticode.support import fixture, fixture_trust
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Look = Callable[..., Inspection]

VERSIONED = (REPOSITORY / "tests" / "data" / "versioned.exe").read_bytes()
SIGNER = "CN=Example Inc, O=Example Inc, C=US"


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, content in members.items():
            made.writestr(name, content)
    return out.getvalue()


def tarred(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as made:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def look_into(data: bytes, name: str = "artifact") -> Inspection:
        file = tmp_path / "artifact"
        file.write_bytes(data)
        (tmp_path / "scratch").mkdir(exist_ok=True)
        found = inspect_file(file, name, fixture_trust(), tmp_path / "scratch")
        assert len(list((tmp_path / "scratch").iterdir())) <= 1
        return found

    return look_into


def test_a_program_has_its_digest_version_and_signer(look: Look) -> None:
    found = look(fixture("stamped.exe"), "kubelet.exe")
    assert found.members is None
    assert (found.file.type, found.file.size) == ("program", len(fixture("stamped.exe")))
    assert found.file.sha256 == hashlib.sha256(fixture("stamped.exe")).hexdigest()
    signature = found.file.signature
    assert signature is not None
    assert (signature.verdict, signature.signer, signature.root) == ("valid", SIGNER, "CN=Example Root, O=Example")
    assert (signature.timestamp, signature.stamped_by) == ("2026-03-01T00:00:00Z", "CN=Example Clock, O=Example")
    assert signature.chain == (SIGNER, "CN=Example Code CA, O=Example", "CN=Example Root, O=Example")
    assert signature.rule == "CN=Example Inc, O=Example Inc"
    assert look(VERSIONED).file.version["FileVersion"] == "v1.36.2+signed"


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_every_file_of_an_archive_is_looked_into(look: Look, pack: Callable[[Mapping[str, bytes]], bytes]) -> None:
    content = {
        "bin/signed.exe": fixture("signed.exe"),
        "bin/unsigned.exe": VERSIONED,
        "scripts/install.ps1": fixture("signed.ps1"),
        "setup.msi": fixture("stamped.msi"),
        "inner.zip": zipped({"kubelet.exe": b"MZ"}),
        "README": b"text",
    }
    members = look(pack(content)).members
    assert members is not None
    assert {path: one.sha256 for path, one in members.items()} == {
        path: hashlib.sha256(data).hexdigest() for path, data in content.items()
    }
    verdicts = {path: one.signature and one.signature.verdict for path, one in members.items()}
    assert verdicts == {
        "bin/signed.exe": "valid",
        "bin/unsigned.exe": "unsigned",
        "scripts/install.ps1": "valid",
        "setup.msi": "valid",
        "inner.zip": None,
        "README": None,
    }
    assert members["bin/unsigned.exe"].version["CompanyName"] == "Example Corporation"
    assert members["setup.msi"].version["ProductVersion"] == "1.0.0"


def test_a_catalogue_signs_for_the_files_beside_it_wherever_it_stands(look: Look) -> None:
    listed = {"a/program.exe": fixture("program.exe"), "z/signed.cat": fixture("signed.cat")}
    members = look(zipped({**listed, "versioned.exe": VERSIONED})).members
    assert members is not None
    verdicts = {
        path: one.signature and (one.signature.verdict, one.signature.catalogue) for path, one in members.items()
    }
    assert verdicts == {
        "a/program.exe": ("valid", "z/signed.cat"),
        "z/signed.cat": ("valid", ""),
        "versioned.exe": ("unsigned", ""),
    }


def test_a_changed_program_is_told(look: Look) -> None:
    data = bytearray(fixture("signed.exe"))
    data[700] ^= 1
    signature = look(bytes(data), "x.exe").file.signature
    assert signature is not None
    assert (signature.verdict, signature.rule) == ("altered", "")


def test_a_huge_program_is_not_looked_into(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect, "LARGEST_PROGRAM", 100)
    found = look(zipped({"x.exe": fixture("signed.exe")}))
    assert found.members is not None
    signature = found.members["x.exe"].signature
    assert signature is not None
    assert signature.verdict == "not checked"
    assert found.members["x.exe"].sha256 == hashlib.sha256(fixture("signed.exe")).hexdigest()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (zipped({"../x.exe": b"MZ"}), "artifact holds '../x.exe': a path outside the folder it is unpacked into"),
        (zipped({"con.exe": b"MZ"}), "a name that Windows does not allow"),
        (zipped({"a.exe": b"MZ", "A.EXE": b"MZ"}), "a name that another member has"),
        (zipped({"x": b"x" * 5000})[:60], "artifact cannot be read as an archive"),
    ],
    ids=["outside", "a device", "one name twice", "cut off"],
)
def test_a_hostile_archive_is_refused_as_in_a_lock(look: Look, data: bytes, says: str) -> None:
    with pytest.raises(ImagegenError) as raised:
        look(data)
    assert says in raised.value.message


def test_a_bomb_ends_at_the_limit(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagegen.inspect.archive.LIMIT_BYTES", 1 << 20)
    with pytest.raises(ImagegenError, match="unpacks to more than"):
        look(zipped({"x.exe": b"MZ" + bytes(3 << 20)}))
