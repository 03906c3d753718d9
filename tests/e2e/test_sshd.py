"""A real sshd reads our sshd_config: it knows each keyword.

sshd comes from the PATH, or else from a Debian package, which is unpacked and not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from tests.conftest import load_today
from tests.deadlines import HANG_S
from tests.e2e.test_boot_matrix import BASE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

pytestmark = pytest.mark.e2e

_PATH = "/usr/sbin:/usr/local/sbin"
# sshd, and a library that only sshd needs.
_PACKAGES = ("openssh-server", "libwrap0")
_DEADLINE_S = HANG_S
# Any account but root: root's sshd also demands an account and a folder of its own, which reading does not need.
_NOBODY = 65534


def _run(
    argv: Sequence[str | Path], folder: Path, environ: Mapping[str, str] | None = None, user: int | None = None
) -> str:
    done = subprocess.run(  # noqa: S603  # programs of this system
        argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=_DEADLINE_S, check=False, user=user
    )
    assert done.returncode == 0, f"{argv[0]}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that any account can read, with a key of the host. pytest's own folders are closed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host_key"], folder)
        if os.geteuid() == 0:
            os.chown(folder / "host_key", _NOBODY, _NOBODY)
        yield folder


@pytest.fixture(scope="module")
def sshd(folder: Path) -> tuple[Path, Mapping[str, str]]:
    """The program, and the environment that it needs."""
    found = shutil.which("sshd", path=f"{os.environ['PATH']}:{_PATH}")
    if found:
        return Path(found), {}
    assert shutil.which("apt-get"), "this test needs sshd: install the OpenSSH server"
    _run(["apt-get", "download", *_PACKAGES], folder)
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", package, folder / "root"], folder)
    (library,) = (folder / "root").rglob("libwrap.so.0")
    return folder / "root/usr/sbin/sshd", {"LD_LIBRARY_PATH": str(library.parent)}


@pytest.fixture
def read(folder: Path, sshd: tuple[Path, Mapping[str, str]]) -> Callable[[str], str]:
    """What sshd makes of a configuration (`sshd -T`): one line for each keyword, in lower case."""

    def settings(text: str) -> str:
        program, environ = sshd
        (folder / "sshd_config").write_text(text)
        argv: list[str | Path] = [program, "-T", "-f", folder / "sshd_config", "-h", folder / "host_key"]
        return _run(argv, folder, {**os.environ, **environ}, _NOBODY if os.geteuid() == 0 else None)

    return settings


def _rendered(*sets: str) -> str:
    prepared = pipeline.prepare_target(load_today(BASE, *sets), "aws")
    (text,) = (step.texts["files/ssh/sshd_config"] for step in prepared.steps if "files/ssh/sshd_config" in step.texts)
    return text.decode()


@pytest.mark.parametrize("port", [22, 2222])
def test_sshd_reads_our_configuration(read: Callable[[str], str], port: int) -> None:
    text = _rendered(f"ssh={{port: {port}}}")
    found = read(text)
    lines = found.splitlines()
    assert f"port {port}" in lines
    assert "passwordauthentication no" in lines
    assert "authorizedkeysfile .ssh/authorized_keys" in lines
    algorithms = {
        name: value for name, _, value in (line.partition(" ") for line in lines) if name in ("ciphers", "macs")
    }
    assert algorithms.keys() == {"ciphers", "macs"}
    assert [value for value in algorithms.values() if not value or "chacha20" in value or "-etm@" in value] == []
    # Microsoft says that CVE-2024-6387 does not affect Windows. Without a limit, connections that never log on stay.
    assert "logingracetime 120" in lines
    # Each keyword of ours is one that sshd knows by this name.
    own = {line.split()[0].lower() for line in text.splitlines() if line and not line.startswith("#")}
    assert own <= {line.split()[0] for line in lines}


def test_sshd_refuses_a_keyword_that_it_does_not_know(read: Callable[[str], str]) -> None:
    with pytest.raises(AssertionError, match="Bad configuration option: PasswordAuthentications"):
        read(_rendered("ssh={}").replace("PasswordAuthentication", "PasswordAuthentications"))
