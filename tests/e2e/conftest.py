"""What the end-to-end tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from imagegen.base.console import Console
from imagegen.build.tools import find_tools
from tests.provider_answers import PLUGINS


@pytest.fixture(scope="session")
def tools_are_here() -> None:
    """Packer and its plugins are found, or built now: no test's deadline has to allow for that."""
    find_tools(environ=os.environ, console=Console(sys.stderr, plain=True), needed=PLUGINS.values())


@pytest.fixture(scope="session")
def cloudbase_init_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests keep other versions of cloudbase-init. All processes of a run share them."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "cloudbase-init"
