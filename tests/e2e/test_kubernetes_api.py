"""The table of Kubernetes' and Cluster API's OpenAPI, by which samples are checked, is what their packages say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.kubernetes_api.record import MODULES, REQUIREMENTS, TABLE, module_file, record, table_text

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, check=True, timeout=300, stdout=subprocess.PIPE, cwd=folder, text=True)  # noqa: S603 - the test's own
    return done.stdout


def test_the_table_is_what_the_packages_say(tmp_path: Path) -> None:
    pip, go = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"), shutil.which("go")
    for line in REQUIREMENTS:
        (tmp_path / "requirements.txt").write_text(line)
        run(tmp_path, *pip, "--require-hashes", "--requirement", "requirements.txt")
    assert go, "Go downloads the modules of Cluster API, and verifies them"
    for module in MODULES:
        told = json.loads(run(tmp_path, go, "mod", "download", "-json", module))
        shutil.copy(told["Zip"], tmp_path / module_file(module))
    assert TABLE.read_text() == table_text(record(tmp_path))
