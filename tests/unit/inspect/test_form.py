"""What a downloaded file is told to be by its first bytes, and what is refused."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import VerificationError
from imagegen.fetch.request import ArtifactRequest, TakenFile
from imagegen.inspect.archive import check_form

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.steps.resource import ArtifactForm

URL = "https://user@repo.example/artifactory/c/download?token=secret"
SHOWN = "https://repo.example/artifactory/c/download"
PAGE = b"\xef\xbb\xbf\r\n<!DOCTYPE html>\n<title>Sign in</title>"


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        made.addfile(tarfile.TarInfo("a"))
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("a", b"")
    return out.getvalue()


MSI = bytes.fromhex("d0cf11e0a1b11ae1") + b"rest"


def _check(tmp_path: Path, form: ArtifactForm, data: bytes) -> str | None:
    file = tmp_path / "artifact"
    file.write_bytes(data)
    return check_form(ArtifactRequest("containerd", URL, None, form, "overrides.containerd_url", URL), file)


def test_one_file_of_the_config_may_be_packed_or_not(tmp_path: Path) -> None:
    """And several files may not: only an archive has all of them."""
    file = tmp_path / "artifact"
    one, other = TakenFile("bin/csi-proxy.exe", "csi-proxy.exe"), TakenFile("b.dll", "b.dll")

    def check(form: ArtifactForm, data: bytes, *files: TakenFile) -> str | None:
        file.write_bytes(data)
        return check_form(
            ArtifactRequest("csi-proxy", URL, None, form, "overrides.x", URL, own=True, files=files), file
        )

    for form in ("archive", "file"):
        assert check(form, b"MZ", one) is None
        assert check(form, _zip(), one) == "zip"
        with pytest.raises(VerificationError, match=r"is an MSI package, neither csi-proxy\.exe nor an archive"):
            check(form, MSI, one)
    script = TakenFile("collect.ps1", "collect.ps1")
    assert check("file", b"# any text", script) is None
    with pytest.raises(VerificationError, match=r"is a web page, neither collect\.ps1 nor"):
        check("file", PAGE, script)
    with pytest.raises(VerificationError, match=r"is a Windows program, not an archive .* with csi-proxy\.exe, b\.dll"):
        check("archive", b"MZ", one, other)
    assert check("archive", gzip.compress(_tar()), one, other) == "tar.gz"


# An archive holds the time it was made: its bytes are no name that every worker of a run would give.
def _no_bytes(value: object) -> str | None:
    return "" if isinstance(value, bytes) else None


@pytest.mark.parametrize(
    ("form", "data", "archive"),
    [
        ("archive", _zip(), "zip"),
        ("archive", b"PK\x05\x06" + bytes(18), "zip"),
        ("archive", gzip.compress(_tar()), "tar.gz"),
        ("archive", _tar(), "tar"),
        ("package", MSI, None),
        ("file", b"MZ", None),
        ("file", b"", None),
        ("file", _zip(), None),
        ("file", b"<config/>", None),
    ],
    ids=_no_bytes,
)
def test_fits(tmp_path: Path, form: ArtifactForm, data: bytes, archive: str | None) -> None:
    assert _check(tmp_path, form, data) == archive


@pytest.mark.parametrize(
    ("form", "data", "found"),
    [
        ("archive", PAGE, "a web page, not an archive (.zip, .tar.gz or .tar)"),
        ("archive", b"<HTML lang=en>", "a web page, not an archive"),
        ("archive", b"", "empty, not an archive"),
        ("archive", b"MZ\x90\x00", "a Windows program, not an archive"),
        ("archive", MSI, "an MSI package, not an archive"),
        (
            "archive",
            b'{"errors": [{"status": 404}]}',
            'a file that begins with \'{"errors": [{"status": 4\', not an archive',
        ),
        ("package", PAGE, "a web page, not an MSI package"),
        ("package", _zip(), "a .zip archive, not an MSI package"),
        ("package", gzip.compress(b""), "a .tar.gz archive, not an MSI package"),
        ("package", b"\x7fELF\x02\r\n", "a file that begins with '\\x7fELF\\x02\\r\\n', not an MSI package"),
        ("file", PAGE, "a web page, not the file itself"),
    ],
    ids=_no_bytes,
)
def test_does_not_fit(tmp_path: Path, form: ArtifactForm, data: bytes, found: str) -> None:
    with pytest.raises(VerificationError) as raised:
        _check(tmp_path, form, data)
    assert raised.value.message.startswith(f"containerd: {SHOWN} is {found}")
    web = "a login page or a web filter answered" if "web page" in found else "check what the URL leads to"
    assert raised.value.hint.startswith(web)
    assert raised.value.hint.endswith("set overrides.containerd_url to the URL of the file")
