"""What the end-to-end tests share."""

from __future__ import annotations

import os
import sys

import pytest

from imagegen.build.tools import find_tools
from imagegen.console import Console
from tests.provider_answers import PLUGINS


@pytest.fixture(scope="session")
def tools_are_here() -> None:
    """Packer and its plugins are found, or built now: no test's deadline has to allow for that."""
    find_tools(environ=os.environ, console=Console(sys.stderr, plain=True), needed=PLUGINS.values())
