"""Faults as data: what an operator gives, and exactly what standard error says. To update: make golden.

A file holds the cases of one verb by their names. A case has `command` (its arguments; {config} and {folder} stand for
paths), `stderr`, `code` where it is not 2, and the `files` that the command meets: `config.yaml`, `config.lock.json`,
steps. `lock_for` is a config whose test lock the command finds. `served` has what downloads bring, by the last part of
their URLs: a text, or the files of a zip.
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
import sys
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

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
FILES = {file: YAML(typ="safe").load(file) for file in sorted(HERE.glob("*.yaml"))}
CASES = [(file, name) for file, cases in FILES.items() for name in cases]


@pytest.mark.parametrize(("file", "name"), CASES, ids=[name for _, name in CASES])
def test_operator_reads_exactly_this(
    file: Path,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    load: Callable[[Path], Loaded],
    make_lock: Callable[[Loaded], Lock],
) -> None:
    case, folder = FILES[file][name], tmp_path / "case"
    for path, content in case.get("files", {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content.encode() if isinstance(content, str) else content)
    folder.mkdir(exist_ok=True)
    if "lock_for" in case:
        (tmp_path / "lock-for.yaml").write_text(case["lock_for"])
        (folder / "config.lock.json").write_bytes(lock_bytes(make_lock(load(tmp_path / "lock-for.yaml"))))
    if "served" in case:
        _serve(case["served"], monkeypatch)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, stdout, stderr = _run(case["command"], folder, monkeypatch, capsys)
    # In a log, each line of what may take long says when it was.
    said = re.sub(r"(?m)^\d\d:\d\d:\d\dZ ", "{time} ", stderr.replace(str(folder), "{folder}"))
    if said != case["stderr"]:
        compare_golden({file: _with_stderr(file, name, said)})
    assert code == case.get("code", ExitCode.USAGE)
    assert stdout == ""


def _with_stderr(file: Path, name: str, said: str) -> str:
    """The file with another text for one case."""
    yaml, written = YAML(), io.StringIO()
    yaml.width = 10**6
    cases = yaml.load(file)
    cases[name]["stderr"] = LiteralScalarString(said)
    yaml.dump(cases, written)
    return written.getvalue()


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
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    places = {"config": folder / "config.yaml", "folder": folder}
    arguments = shlex.split(command.format(**places))
    monkeypatch.setattr(sys, "argv", ["imagegen", *arguments])
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as exit_:
        main()
    captured = capsys.readouterr()
    return exit_.value.code, captured.out, captured.err


def test_operator_is_never_shown_the_inside() -> None:
    leaks = ("Traceback", "pydantic", "ruamel", "tag:yaml.org", "NoneType", "StrictUndefined", "<class", "object at 0x")
    said = {name: case["stderr"] for cases in FILES.values() for name, case in cases.items()}
    assert [(name, leak) for name, text in said.items() for leak in leaks if leak in text] == []
    assert [name for name, text in said.items() if not text.startswith(("error: ", "{time} error: ", "Usage: "))] == []


def test_each_name_is_that_of_one_case() -> None:
    names = [name for _, name in CASES]
    assert len(names) == len(set(names)) >= 40
