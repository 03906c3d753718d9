"""What the Makefile passes on."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from imagegen.build import process
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("verb", ["build-aws", "build-azure", "validate"])
def test_make_passes_args_on(verb: str, tmp_path: Path) -> None:
    wanted = "--set kubernetes.version=1.36.3 --set 'name=x'"
    # What only exists on a developer's machine, the environment's time stamp, counts as up to date.
    make = shutil.which("make")
    assert make is not None
    argv = [make, "-n", "-o", ".venv/.set-up", verb, f"ARGS={wanted}", f"OUT={tmp_path}"]
    # Without the variables of the make that runs the tests: it would add lines of its own.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = process.run(argv, environ=environ, cwd=REPOSITORY, timeout=30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(f" {wanted}")
