"""Output that has no place to go: a message and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.cli.main import READER_LEFT
from imagegen.fetch.lock import lock_bytes
from tests.deadlines import HANG_S
from tests.e2e.rehearsal_support import CONFIG, loaded, stock_lock, user_environ

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def _shell(script: str, folder: Path) -> process.Completed:
    (folder / "lock").write_bytes(lock_bytes(stock_lock(loaded())))
    places = {"imagegen": f"{sys.executable} -m imagegen", "config": str(CONFIG), "folder": str(folder)}
    argv = ["/bin/bash", "-c", script.format(**places)]
    # A limit of file sizes would also cut the interpreter's own compiled files short.
    environ = user_environ(folder, PYTHONDONTWRITEBYTECODE="1")
    return process.run(argv, environ=environ, cwd=folder, timeout=HANG_S)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux'")  # noqa: PTH110 - not a file of ours
@pytest.mark.parametrize("verb", ["catalog kubernetes", "validate {config}", "explain {config}", "--help"])
def test_a_full_disk_behind_standard_output(verb: str, tmp_path: Path) -> None:
    done = _shell("{imagegen} " + verb + " > /dev/full", tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "No space left on device" in done.stderr
    assert "hint: free some space" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux'")  # noqa: PTH110 - not a file of ours
def test_nothing_can_be_told_at_all(tmp_path: Path) -> None:
    done = _shell("{imagegen} catalog kubernetes > /dev/full 2> /dev/full", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.USAGE, "", "")


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    words = "render {config} --target aws --lock {folder}/lock --out {folder}/out"
    done = _shell("ulimit -f 2; {imagegen} " + words, tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "File too large" in done.stderr
    assert "`ulimit -f`" in done.stderr
    assert "Traceback" not in done.stderr
    # Neither half a tree nor what it was put together in; the lock of the folder is empty, and stays.
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == [".lock"]


INIT = "init --target aws --region us-east-1 --allow-cidr 10.0.0.0/8 --name windows"
REHEARSED = "{config} --target aws --rehearse"


@pytest.mark.parametrize("verb", [INIT, f"plan {REHEARSED}", f"render {REHEARSED}", f"build {REHEARSED}"])
def test_no_file_may_be_written_at_all(verb: str, tmp_path: Path) -> None:
    done = _shell("ulimit -f 0; {imagegen} " + verb, tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "error: no folder for temporary files can be written to" in done.stderr
    assert "`ulimit -f`" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("target", ["aws", "azure"])
def test_the_stand_ins_say_what_they_cannot_write(target: str, tmp_path: Path) -> None:
    words = "render {config} --target " + target + " --rehearse --out {folder}/out"
    done = _shell("ulimit -f 1; {imagegen} " + words, tmp_path)
    assert done.returncode == ExitCode.BUILD
    assert "File too large; free some space" in done.stderr
    assert "`ulimit -f`" in done.stderr
    # What the client makes of it, and advises.
    assert [told for told in ("Traceback", "check the network", "AZURE_TENANT_ID") if told in done.stderr] == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    words = "render {config} --target aws --lock {folder}/lock --out {folder}/lock/out"
    done = _shell("{imagegen} " + words, tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert f"error: {tmp_path}/lock/out/" in done.stderr
    assert "Not a directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves(tmp_path: Path) -> None:
    script = "{imagegen} schema | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}"
    done = _shell(script, tmp_path)
    assert (done.returncode, done.stderr) == (READER_LEFT, "")


def test_closed_standard_streams(tmp_path: Path) -> None:
    done = _shell("{imagegen} validate {config} <&- >&- 2>&-", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.OK, "", "")


def test_init_lists_the_flags_where_standard_input_is_closed(tmp_path: Path) -> None:
    done = _shell("{imagegen} init <&-", tmp_path)
    assert done.returncode == ExitCode.USAGE
    assert "error: missing: --target, --allow-cidr" in done.stderr
    done = _shell("{imagegen} " + INIT + " <&-", tmp_path)
    assert done.stdout.startswith("wrote windows.yaml")


def test_a_tale_that_nobody_can_read(tmp_path: Path) -> None:
    done = _shell("{imagegen} plan {config} --target aws --rehearse --format json 2>&-", tmp_path)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert json.loads(done.stdout)
