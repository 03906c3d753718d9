"""The guard of unit tests: what it keeps out, it keeps out."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

END_TO_END = sorted((Path(__file__).parents[1] / "e2e").glob("**/test_*.py"))


@pytest.mark.parametrize("address", [("127.0.0.1", 9), ("192.0.2.1", 443)])
def test_a_unit_test_reaches_no_network(address: tuple[str, int]) -> None:
    with socket.socket() as sock, pytest.raises(pytest.fail.Exception, match="connects to"):
        sock.connect(address)


def test_a_unit_test_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        subprocess.run([sys.executable, "-c", ""], check=True)


def test_every_end_to_end_module_is_marked_as_a_whole() -> None:
    """`-m "not e2e"` does not read their folder: a test without the mark would never run."""
    assert END_TO_END
    marked = re.compile(r"^pytestmark = .*\bpytest\.mark\.e2e\b", re.MULTILINE)
    assert [file.name for file in END_TO_END if not marked.search(file.read_text())] == []
