"""The guard of unit tests: what it keeps out, it keeps out."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest


@pytest.mark.parametrize("address", [("127.0.0.1", 9), ("192.0.2.1", 443)])
def test_a_unit_test_reaches_no_network(address: tuple[str, int]) -> None:
    with socket.socket() as sock, pytest.raises(pytest.fail.Exception, match="connects to"):
        sock.connect(address)


def test_a_unit_test_starts_no_process() -> None:
    with pytest.raises(pytest.fail.Exception, match="starts a process"):
        subprocess.run([sys.executable, "-c", ""], check=True)
