"""Chooses the cloudbase-init that a rehearsal runs: the image's version, or else the nearest that is on this machine.

A version that is not installed is downloaded once with pip, into imagegen's cache.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from packaging.version import Version

from imagegen.base.errors import ToolError
from imagegen.base.files import replace_folder, scratch_folder
from imagegen.base.locks import locked
from imagegen.build import process
from imagegen.build.process import pip_environment
from imagegen.build.tools import cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.base.console import Console
    from imagegen.build.process import Completed, ProgramRunner

PACKAGE: Final = "cloudbase-init"
_MODULE: Final = "cloudbaseinit"
# Enough for a slow line: the package has half a megabyte.
_TIMEOUT_S: Final = 120.0
# Another run may be downloading it.
_LOCK_WAIT_S: Final = 2 * _TIMEOUT_S
# pip's own words; it says them at every index that does not answer.
_NO_CONNECTION: Final = "connection broken by"
_NO_PIP: Final = "No module named pip"
_ERROR: Final = "ERROR: "


@dataclasses.dataclass(frozen=True)
class Choice:
    """A cloudbase-init that can run here."""

    version: str
    modules: tuple[Path, ...] = ()
    """The folder that it is in. Empty for the installed one."""
    reason: str = ""
    """Why it is not the image's version. Empty if it is."""


def choose_version(
    wanted: str,
    *,
    environ: Mapping[str, str],
    console: Console,
    run: ProgramRunner = process.run,
    installed: str | None = None,
) -> Choice:
    """The cloudbase-init for an image with version `wanted`. The installed one costs nothing and needs no network."""
    installed = installed or installed_version()
    if wanted == installed:
        return Choice(installed)
    copies: dict[str, Path] = {}
    try:
        cache = _find_cache(environ)
        copies = _list_copies(cache)
        return Choice(wanted, (_provide(wanted, cache, environ, console, run),))
    except (ToolError, OSError) as error:
        nearest = _find_nearest(wanted, [installed, *copies])
        modules = () if nearest == installed else (copies[nearest],)
        return Choice(nearest, modules, str(error))


def installed_version() -> str:
    """The version that this Python has."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        hint = "pip install 'imagegen[rehearsal]'"
        raise ToolError(f"a rehearsal needs {PACKAGE}, which is not installed", hint=hint) from None


def _find_cache(environ: Mapping[str, str]) -> Path:
    cache = cache_folder(environ)
    if os.pathsep in str(cache):
        raise ToolError(f"Python cannot load modules from {cache}, because its path contains {os.pathsep}")
    return cache


def _provide(wanted: str, cache: Path, environ: Mapping[str, str], console: Console, run: ProgramRunner) -> Path:
    """The folder of the cache with this version, downloaded if it is not there. ToolError if it cannot be had."""
    folder = cache / f"{PACKAGE}-{wanted}"
    if _holds(folder, wanted):
        return folder

    def waiting() -> None:
        console.say(f"another run is downloading {PACKAGE}; waiting for it to end")

    with locked(cache / f"{PACKAGE}.lock", wait_s=_LOCK_WAIT_S, waiting=waiting):
        if not _holds(folder, wanted):
            # The folder is complete, or it is not there: whoever killed a download left a folder of another name.
            with scratch_folder(cache, f".{PACKAGE}-") as scratch, console.task(f"pip: {PACKAGE} {wanted}", None):
                new = scratch / "new"
                _download(wanted, new, environ, run)
                replace_folder(new, folder, scratch / "old")
    return folder


def _holds(folder: Path, wanted: str) -> bool:
    """Whether all of this version is there: what cleans caches may take single files, and Python would then take the
    installed version's."""
    found = [*importlib.metadata.distributions(name=PACKAGE, path=[str(folder)])]
    if [distribution.version for distribution in found] != [wanted]:
        return False
    try:
        # pip counts programs from another folder than --target, and gives no digest of what it compiled.
        digests = {file: file.hash for file in found[0].files or () if file.hash and ".." not in file.parts}
        whole = all(_digest(file, expected.mode) == expected.value for file, expected in digests.items())
    except (OSError, ValueError):
        return False
    return whole and any(file.parts[0] == _MODULE for file in digests)


def _digest(file: importlib.metadata.PackagePath, kind: str) -> str:
    """As pip's list of files has it."""
    return base64.urlsafe_b64encode(hashlib.new(kind, file.read_binary()).digest()).rstrip(b"=").decode()


def _download(wanted: str, folder: Path, environ: Mapping[str, str], run: ProgramRunner) -> None:
    # What it depends on is installed. Nothing is built: the source package takes ten times as long, and runs code.
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--target", folder)
    try:
        done = run(
            # Without -P, Python takes modules of the user's current folder for its own.
            [sys.executable, "-P", "-m", "pip", "install", *options, f"{PACKAGE}=={wanted}"],
            environ=pip_environment(environ),
            timeout=_TIMEOUT_S,
        )
    except TimeoutError as overdue:
        raise ToolError(f"pip did not download it within {_TIMEOUT_S:g} s") from overdue
    if done.returncode != 0:
        raise ToolError(_explain(wanted, done))
    if not _holds(folder, wanted):
        raise ToolError(f"pip downloaded something else than {PACKAGE} {wanted}")


def _explain(wanted: str, done: Completed) -> str:
    """Why pip failed, in a few words."""
    lines = done.stderr.splitlines()
    if any(_NO_PIP in line for line in lines):
        return "this Python has no pip to download it"
    if any(_NO_CONNECTION in line for line in lines):
        return "pip cannot reach the package index to download it"
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    if any(line.startswith("Could not find a version") for line in errors):
        return f"the package index has no wheel of {PACKAGE} {wanted}"
    return f"pip could not download it: {errors[-1] if errors else f'it ended with {done.returncode}'}"


def _list_copies(cache: Path) -> dict[str, Path]:
    """The versions in the cache."""
    folders = {folder.name.removeprefix(f"{PACKAGE}-"): folder for folder in cache.glob(f"{PACKAGE}-*")}
    return {version: folder for version, folder in folders.items() if _holds(folder, version)}


def _find_nearest(wanted: str, versions: Sequence[str]) -> str:
    """The newest version before the wanted one, or else the oldest after it."""
    before = [version for version in versions if Version(version) < Version(wanted)]
    return max(before, key=Version) if before else min(versions, key=Version)
