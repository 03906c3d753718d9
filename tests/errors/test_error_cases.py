"""Faults as folders: what an operator gives, and exactly what standard error says. To update: make golden.

A case holds `command` (its arguments; {config} and {folder} stand for paths), `stderr.txt`, `code` where it is not 2,
and what the command meets: `config.yaml`, `config.lock.json`, `steps/` laid over the shipped ones. `lock-for.yaml` is a
config whose test lock the command finds. `served.json` has what downloads bring, by the last part of their URLs: a
text, or the files of a zip.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import sys
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.cli.main import main
from imagegen.fetch.download import Download, Fetched
from imagegen.fetch.http import Answer, Web
from imagegen.fetch.lock import lock_bytes
from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.fetch.lock import Lock
    from imagegen.plan.loading import Loaded

HERE = Path(__file__).parent
CASES = sorted(path.parent for path in HERE.glob("*/command"))


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_operator_reads_exactly_this(
    case: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    load: Callable[[Path], Loaded],
    make_lock: Callable[[Loaded], Lock],
) -> None:
    folder = tmp_path / "case"
    shutil.copytree(case, folder)
    if (folder / "lock-for.yaml").exists():
        lock = make_lock(load(folder / "lock-for.yaml"))
        (folder / "config.lock.json").write_bytes(lock_bytes(lock))
    if (folder / "served.json").exists():
        _serve(json.loads((folder / "served.json").read_text()), monkeypatch)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, stdout, stderr = _run(case, folder, monkeypatch, capsys)
    # In a log, each line of what may take long says when it was.
    said = re.sub(r"(?m)^\d\d:\d\d:\d\dZ ", "{time} ", stderr.replace(str(folder), "{folder}"))
    compare_golden({case / "stderr.txt": said})
    agreed_code = int((case / "code").read_text()) if (case / "code").exists() else ExitCode.USAGE
    assert code == agreed_code
    assert stdout == ""


def _serve(served: dict[str, str | dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads bring this, without a network."""

    def fill(download: Download, file: IO[bytes]) -> Fetched:
        content = served[download.url.rpartition("/")[2]]
        if isinstance(content, str):
            file.write(content.encode())
        else:
            with zipfile.ZipFile(file, "w") as made:
                for name, text in content.items():
                    made.writestr(name, text)
        file.seek(0)
        data = file.read()
        return Fetched(hashlib.sha256(data).hexdigest(), len(data))

    monkeypatch.setattr(Download, "fill", fill)
    # Nobody publishes digests there.
    monkeypatch.setattr(Web, "ask", lambda *_: Answer(404, {}, b""))


def _run(
    case: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    places = {"config": folder / "config.yaml", "folder": folder}
    arguments = shlex.split((case / "command").read_text().format(**places))
    monkeypatch.setattr(sys, "argv", ["imagegen", *arguments])
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exit_:
        main()
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


def test_operator_is_never_shown_the_inside() -> None:
    leaks = ("Traceback", "pydantic", "ruamel", "tag:yaml.org", "NoneType", "StrictUndefined", "<class", "object at 0x")
    said = {case.name: (case / "stderr.txt").read_text() for case in CASES}
    assert [(name, leak) for name, text in said.items() for leak in leaks if leak in text] == []
    assert [name for name, text in said.items() if not text.startswith(("error: ", "{time} error: ", "Usage: "))] == []


def test_folders_are_cases() -> None:
    assert len(CASES) >= 40
    strays = [path.name for path in HERE.iterdir() if path.is_dir() and not path.name.startswith("__")]
    assert sorted(strays) == sorted(case.name for case in CASES)
