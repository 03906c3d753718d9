"""What the Makefile passes on, and how it renews golden files."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from imagegen.build import process
from tests.conftest import REPOSITORY
from tests.deadlines import HANG_S

pytestmark = pytest.mark.e2e


def _make(folder: Path, *words: str, timeout_s: float) -> process.Completed:
    # What only exists on a developer's machine, the environment's time stamp, counts as up to date.
    make = shutil.which("make")
    assert make is not None
    # Without the variables of the make and the pytest that run the tests: they would add lines and change what is run.
    mine = ("MAKE", "MFLAGS", "PYTEST")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    argv = [make, "-o", ".venv/.set-up", *words]
    return process.run(argv, environ=environ, cwd=folder, timeout=timeout_s)


@pytest.mark.parametrize("verb", ["build-aws", "build-azure", "validate"])
def test_make_passes_args_on(verb: str, tmp_path: Path) -> None:
    wanted = "--set kubernetes.version=1.36.5 --set 'name=x'"
    done = _make(REPOSITORY, "-n", verb, f"ARGS={wanted}", f"OUT={tmp_path}", timeout_s=HANG_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(f" {wanted}")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the golden trees are made of."""
    folder = tmp_path / "copy"
    for name in ("ansible-win", "configs", "imagegen", "packer", "tests"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, folder)
    return folder


def _golden(folder: Path) -> process.Completed:
    return _make(folder, "golden", f"BIN={Path(sys.executable).parent}", "GOLDENS=tests/golden", timeout_s=HANG_S)


def _texts(folder: Path) -> dict[str, bytes]:
    paths = [path for name in ("configs", "imagegen", "tests") for path in (folder / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.suffix != ".pyc"}


def test_make_golden_ends_well_when_it_only_rewrote(copy: Path) -> None:
    before = _texts(copy)
    for script in ("common.psm1", "kinds/file.ps1"):
        with (copy / "packer" / "guest" / script).open("ab") as stream:
            stream.write(b" ")
    done = _golden(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    after = _texts(copy)
    # Whatever scripts change, one file does.
    rewritten = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert rewritten == {"tests/golden/identities.txt"}
    [said] = [line for line in done.stdout.splitlines() if line.startswith("rewrote ")]
    assert said.startswith("rewrote tests/golden/identities.txt, ")


def test_make_golden_fails_where_more_is_wrong(copy: Path) -> None:
    (copy / "tests" / "golden" / "minimal" / "aws.diff").unlink()
    (copy / "tests" / "golden" / "stray.diff").write_text("of no config\n")
    done = _golden(copy)
    assert done.returncode == 2, done.stdout
    assert "rewrote tests/golden/minimal/aws.diff" in done.stdout
    assert "stray.diff" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
