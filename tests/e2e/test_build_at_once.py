"""Packer and its plugins built by a Go that never finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ExitCode
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

# `go build` says who it is and waits; `go mod download` answers with a folder.
GO = """#!/bin/sh
if [ "$1" = build ]; then echo $$ >> "{pids}"; exec sleep 60; fi
echo '{answer}'
"""


def test_a_termination_ends_the_build_and_leaves_nothing(tmp_path: Path) -> None:
    module, pids, bin_folder = tmp_path / "module", tmp_path / "pids", tmp_path / "bin"
    module.mkdir()
    bin_folder.mkdir()
    os.mkfifo(pids)
    (bin_folder / "go").write_text(GO.format(pids=pids, answer=json.dumps({"Dir": str(module)})))
    (bin_folder / "go").chmod(0o755)
    environ = {
        "HOME": str(tmp_path),
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        # Nothing listens there: it is known at once that nothing can be downloaded.
        "HTTPS_PROXY": "http://127.0.0.1:9",
    }
    argv = [sys.executable, "-m", "imagegen", "tools", "--plain"]
    with subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True) as child:  # noqa: S603 - this package
        running: list[int] = []
        while not running:
            running += [int(line) for line in pids.read_text().split()]
        child.send_signal(signal.SIGTERM)
        _, said = child.communicate(timeout=HANG_S)
    assert child.returncode == ExitCode.INTERRUPTED, said
    [pid] = running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert [path.name for path in (tmp_path / ".cache" / "imagegen").iterdir()] == ["tools.lock"]
