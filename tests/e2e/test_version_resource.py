"""The version resource of a program that mingw-w64 makes of tests/data/versioned.rc; and the kept copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from imagegen.inspect.versions import read_version
from tests.authenticode.tools import find_tools
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.e2e

DATA = REPOSITORY / "tests" / "data"
# windres looks for a compiler under another name than Debian's.
PREPROCESSOR = ("--preprocessor-arg=-E", "--preprocessor-arg=-xc-header", "--preprocessor-arg=-DRC_INVOKED")


def test_a_program_of_a_real_compiler_has_its_version(tmp_path: Path) -> None:
    tools = find_tools(tmp_path)
    windres = shutil.which("x86_64-w64-mingw32-windres") or Path(tools.gcc).with_name("x86_64-w64-mingw32-windres")
    (tmp_path / "program.c").write_text("int entry(void) { return 0; }\n")
    resource = ("-O", "coff", "-o", "resource.o", DATA / "versioned.rc")
    tools.run([windres, f"--preprocessor={tools.gcc}", *PREPROCESSOR, *resource], tmp_path)
    tools.run([tools.gcc, "-nostdlib", "-Wl,-e,entry", "-o", "made.exe", "program.c", "resource.o"], tmp_path)
    with (tmp_path / "made.exe").open("rb") as made, (DATA / "versioned.exe").open("rb") as kept:
        found = read_version(made)
        assert found == read_version(kept)
    assert found["FileVersion"] == "v1.36.2+signed"
