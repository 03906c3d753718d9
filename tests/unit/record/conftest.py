"""A folder with all files about one image, which belong together."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.attest_support import Proof, make_proof


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_proof(tmp_path_factory.mktemp("proof")).folder


@pytest.fixture
def proof(made: Path, tmp_path: Path) -> Proof:
    """A copy for a test that changes it."""
    return Proof(Path(shutil.copytree(made, tmp_path / "proof")))
