"""The programs that make and sign real files: from the PATH, or from Debian packages, unpacked and not installed."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_DEADLINE_S = HANG_S
# Scripts and catalogues came with 2.8.
_OLDEST_OSSLSIGNCODE = (2, 8)
_GCC = ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-gcc-win32")
# Each program with the packages that it needs on a machine without it.
_PACKAGES = {
    "osslsigncode": ("osslsigncode",),
    "gcc": (
        *("gcc-mingw-w64-x86-64-win32", "binutils-mingw-w64-x86-64", "gcc-mingw-w64-base"),
        *("libisl23", "libmpc3", "libmpfr6"),
    ),
    "wixl": ("wixl", "wixl-data", "libmsi0", "libgcab-1.0-0", "libgsf-1-114", "libxml2"),
}


@dataclasses.dataclass(frozen=True)
class Tools:
    """Where the programs are, and the environment that they need."""

    osslsigncode: str
    gcc: str
    wixl: str
    environ: Mapping[str, str]

    def run(self, argv: Sequence[str | Path], folder: Path, *, codes: tuple[int, ...] = (0,)) -> tuple[int, str]:
        """The exit code and all output of a program."""
        done = subprocess.run(  # noqa: S603 - programs that the tests chose
            argv, cwd=folder, env=self.environ, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
        )
        output = done.stdout + done.stderr
        assert done.returncode in codes, f"{argv[0]} ended with {done.returncode}: {output}"
        return done.returncode, output

    def sign(self, source: Path, target: Path, *options: str | Path) -> None:
        """Sign a file with osslsigncode."""
        self.run([self.osslsigncode, "sign", *options, "-in", source, "-out", target], target.parent)


def find_tools(folder: Path) -> Tools:
    """Find the programs. Packages of those that are missing are unpacked into the folder."""
    found = {
        "osslsigncode": shutil.which("osslsigncode"),
        "gcc": next(filter(None, map(shutil.which, _GCC)), None),
        "wixl": shutil.which("wixl"),
    }
    packages = [package for name, path in found.items() if path is None for package in _PACKAGES[name]]
    root = folder / "root"
    environ = dict(os.environ)
    if packages:
        _unpack(packages, folder, root)
        (data,) = [*root.glob("usr/share/wixl-*"), None][:1]
        libraries = ":".join(str(path) for path in root.glob("usr/lib/*-linux-gnu"))
        environ |= {"LD_LIBRARY_PATH": libraries, **({"WIXL_DATADIR": str(data)} if data else {})}
    paths = {
        name: path or str(next(root.glob(f"usr/bin/{pattern}")))
        for (name, path), pattern in zip(found.items(), ("osslsigncode", _GCC[-1], "wixl"), strict=True)
    }
    tools = Tools(paths["osslsigncode"], paths["gcc"], paths["wixl"], environ)
    _, output = tools.run([tools.osslsigncode, "--version"], folder, codes=(0, 1))
    version = re.search(r"osslsigncode (\d+)\.(\d+)", output)
    assert version, output
    assert (int(version[1]), int(version[2])) >= _OLDEST_OSSLSIGNCODE, "these tests need osslsigncode 2.8 or newer"
    return tools


def _unpack(packages: Sequence[str], folder: Path, root: Path) -> None:
    assert shutil.which("apt-get"), f"these tests need the programs of {', '.join(packages)}"
    run = Tools("", "", "", os.environ).run
    run(["apt-get", "download", *packages], folder)
    for package in folder.glob("*.deb"):
        run(["dpkg-deb", "-x", package, root], folder)
