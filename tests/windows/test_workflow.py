"""The workflow that carries the cases out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
WORKFLOWS: Final = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
_ACTIONLINT: Final = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_action_is_pinned_by_its_commit(path: Path) -> None:
    used = re.findall(r"(?m)^\s*-? ?uses: (.*)$", path.read_text("utf-8"))
    assert used != []
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[0-9.]+", line)] == []


def test_windows_runners_leave_restarts_out() -> None:
    text = (REPOSITORY / ".github" / "workflows" / "windows.yml").read_text("utf-8")
    assert "runner: [windows-2022, windows-2025]" in text
    assert "run.py windows-cases --no-restart" in text


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is missing, which builds actionlint")
def test_actionlint_has_no_complaint() -> None:
    command = ["go", "run", _ACTIONLINT, *map(str, WORKFLOWS)]
    done = subprocess.run(  # noqa: S603  # of our own list
        command, capture_output=True, text=True, check=False, timeout=900, env={**os.environ, "GOFLAGS": "-mod=mod"}
    )
    assert (done.returncode, done.stdout) == (0, "")
