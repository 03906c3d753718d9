"""The logs of a failed build's machine: what becomes a zip, without any secret, and what is refused."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import stat
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import BuildError
from imagegen.build import logs
from imagegen.build.logs import FILE, GuestLogs
from imagegen.build.output import log_texts, scrub
from tests.unit.build.test_packer_run import build, phase, resource, said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_MARK = "marker-0d1f"
_ASKED = said("Provisioning step had errors: Running the cleanup provisioner, if present...")
_ERROR = "1,amazon-ebs.image,error,Script exited with non-zero exit status: 6. Allowed exit codes are: [0 3010]"
_NONE = "no logs of the machine: "


def pack(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def lines_of(data: bytes, *, length: int = 900) -> Iterator[str]:
    """As logs.ps1 prints them."""
    text = base64.b64encode(data).decode()
    yield f"imagegen-logs: begin {len(data)} {hashlib.sha256(data).hexdigest()}"
    yield from (f"imagegen-logs: {text[at : at + length]}" for at in range(0, len(text), length))
    yield "imagegen-logs: end"


def unpack(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _receive(folder: Path, data: bytes) -> GuestLogs:
    logs = GuestLogs(folder / FILE, functools.partial(scrub, secrets=(_MARK,)))
    logs.is_asked = True
    assert all(logs.take(line) for line in lines_of(data))
    return logs


def test_what_the_machine_prints_becomes_a_zip_of_its_owner(tmp_path: Path) -> None:
    logs = _receive(tmp_path, pack({"imagegen/engine.log": b"one\r\ntwo\r\n" * 9_000, "notes.txt": b""}))
    assert logs.line == f"the logs of the machine: {tmp_path / FILE}"
    assert unpack(tmp_path / FILE) == {"imagegen/engine.log": b"one\ntwo\n" * 8_999 + b"one\ntwo", "notes.txt": b""}
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "text",
    [f"a {_MARK} b", f"winrm_password={_MARK}x", "https://a:geheim@example.com/", "https://example.com/?sig=geheim"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16"])
def test_no_secret_is_in_the_zip(tmp_path: Path, text: str, encoding: str) -> None:
    _receive(tmp_path, pack({"panther/setupact.log": f"line\r\n{text}\r\n".encode(encoding)}))
    [found] = unpack(tmp_path / FILE).values()
    assert b"***" in found
    assert [one for one in (_MARK, "geheim") if one.encode() in found or one.encode("utf-16-le") in found] == []


def test_logs_of_an_earlier_build_are_gone(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"old")
    GuestLogs(tmp_path / FILE, str)
    assert not (tmp_path / FILE).exists()


def _cut(lines: list[str]) -> list[str]:
    return [*lines[:1], *lines[2:]]


SPOILT: dict[str, Callable[[list[str]], list[str]]] = {
    "no end": lambda lines: lines[:-1],
    "no beginning": lambda lines: lines[1:],
    "a part is missing": _cut,
    "another order": lambda lines: [lines[0], *reversed(lines[1:-1]), lines[-1]],
    "another sha256": lambda lines: [lines[0][:-64] + "0" * 64, *lines[1:]],
    "no base64": lambda lines: [lines[0], "imagegen-logs: !", lines[-1]],
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_what_is_not_complete_is_not_kept(tmp_path: Path, spoil: Callable[[list[str]], list[str]]) -> None:
    logs = GuestLogs(tmp_path / FILE, str)
    logs.is_asked = True
    for line in spoil([*lines_of(pack({"a.log": bytes(range(256))}), length=60)]):
        assert logs.take(line)
    assert logs.line in (f"{_NONE}what the machine sent is not complete", f"{_NONE}the machine did not answer")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "data",
    [
        b"no zip",
        pack({"../a.log": b"a"}),
        pack({"/a.log": b"a"}),
        pack({"a\\b.log": b"a"}),
        pack({"a.log": bytes(5 * 1024 * 1024)}),
        pack({f"{number}.log": b"" for number in range(501)}),
    ],
    ids=["no zip", "above", "absolute", "backslash", "large", "many"],
)
def test_a_zip_that_the_script_does_not_make_is_not_kept(tmp_path: Path, data: bytes) -> None:
    assert _receive(tmp_path, data).line == f"{_NONE}what the machine sent is not complete"
    assert list(tmp_path.iterdir()) == []


def test_without_end_the_machine_fills_no_memory(tmp_path: Path) -> None:
    heard = GuestLogs(tmp_path / FILE, str)
    for _ in range(12):
        heard.take(f"imagegen-logs: {'A' * 1_000_000}")
    assert sum(map(len, heard._parts)) <= 2 * logs._LONGEST + 1_000_000


def _failure(folder: Path, *lines: str) -> list[str]:
    with pytest.raises(BuildError) as failed:
        build(folder, [phase("started"), resource("failed", "it is broken"), *lines], 1)
    assert failed.value.message == "containerd/service:containerd failed in phase-2: it is broken"
    return list(failed.value.details)


def test_a_failed_build_names_the_logs_and_no_log_has_their_lines(tmp_path: Path) -> None:
    data = pack({"imagegen/engine.log": b"why"})
    details = _failure(tmp_path, _ASKED, *(said(line) for line in lines_of(data)), _ERROR)
    assert details[-2:] == [
        f"the logs of the machine: {tmp_path / 'logs' / FILE}",
        f"the full log: {tmp_path / 'logs' / 'packer.log'}",
    ]
    assert unpack(tmp_path / "logs" / FILE) == {"imagegen/engine.log": b"why"}
    assert "imagegen-logs" not in (tmp_path / "logs" / "packer.log").read_text()


def test_a_failed_build_says_why_there_are_none(tmp_path: Path) -> None:
    both = "Cleanup failed: no answer in time. Original Provisioning error: Script exited with 6"
    details = _failure(tmp_path, _ASKED, f"1,amazon-ebs.image,error,{both}")
    assert f"{_NONE}no answer in time" in details
    # The error of the clean-up is not the one of the build.
    assert "Packer: Script exited with 6" in details
    assert _failure(tmp_path, _ASKED, _ERROR)[-2] == f"{_NONE}the machine did not answer"


def test_a_build_that_asked_for_none_says_nothing_of_them(tmp_path: Path) -> None:
    assert [line for line in _failure(tmp_path, _ERROR) if "logs of the machine" in line] == []


def test_only_packers_question_makes_lines_of_a_machine_logs(tmp_path: Path) -> None:
    lines = [said(line) for line in lines_of(pack({"a.log": b"a"}))]
    assert f"{_NONE}the machine did not answer" in _failure(tmp_path, *lines, _ASKED, _ERROR)
    assert not (tmp_path / "logs" / FILE).exists()


def test_no_debug_log_and_no_log_of_an_orphan_has_their_lines(tmp_path: Path) -> None:
    debug = "2026/11/19 10:00:00 ui: imagegen-logs: AAAA"
    with pytest.raises(BuildError):
        build(tmp_path, [_ERROR], 1, errors=[debug, debug.replace("imagegen-logs", "other")])
    text = (tmp_path / "logs" / "packer.log").read_text()
    assert ("imagegen-logs" in text, "other: AAAA" in text) == (False, True)
    assert log_texts(said("imagegen-logs: AAAA"), ()) == []
