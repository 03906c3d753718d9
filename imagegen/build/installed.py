"""Finds out a Packer's version and plugins: runs it, or takes the answer of an earlier run from a small JSON file.

An answer is valid until one of the files that it came from changes.
"""

import contextlib
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import pydantic
from packaging.version import InvalidVersion, Version

from imagegen.build import environment
from imagegen.build.process import ProgramRunner
from imagegen.build.toolchain import Plugin
from imagegen.files import write_file

# Packer prints its version in a tenth of a second. For its list it reads every plugin file, which takes one second.
_VERSION_TIMEOUT_S: Final = 10
_PLUGINS_TIMEOUT_S: Final = 20
_VERSION_LINE = re.compile(r"(?m)^Packer v(\S+)")
_PLUGIN_FILE = re.compile(r"packer-plugin-(?P<name>[a-z0-9-]+)_v(?P<version>[^_]+)_x[0-9.]+_")
# Each answer with the size and the time of every file that it came from.
_ANSWERS: Final = pydantic.TypeAdapter(dict[str, tuple[str, dict[str, tuple[int, int]]]])


class AnswerCache:
    """Answers of earlier runs. A damaged file is an empty cache: it only costs time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, *key: object) -> str | None:
        """The answer, if every file that it came from still has the same size and time."""
        answer, files = self._read().get(_text(key), (None, {}))
        return answer if _fingerprints(map(Path, files)) == files else None

    def put(
        self, answer: str, files: Collection[Path], *key: object, is_current: Callable[[], bool] = lambda: True
    ) -> None:
        """Store an answer with the files and folders that it came from, unless one of them is missing.

        `is_current` is called after their sizes and times were read: they could be newer than the answer.
        """
        fingerprints = _fingerprints(files)
        if len(fingerprints) == len(files) and is_current():
            answers = {**self._read(), _text(key): (answer, fingerprints)}
            # On a read-only home the tools run each time.
            with contextlib.suppress(OSError):
                write_file(self._file, _ANSWERS.dump_json(answers, indent=1))

    def _read(self) -> dict[str, tuple[str, dict[str, tuple[int, int]]]]:
        try:
            return _ANSWERS.validate_json(self._file.read_bytes(), strict=True)
        except (OSError, pydantic.ValidationError):
            return {}


def _text(key: Iterable[object]) -> str:
    return json.dumps([str(part) for part in key])


def _fingerprints(files: Iterable[Path]) -> dict[str, tuple[int, int]]:
    return {str(file): (_size(file), file.stat().st_mtime_ns) for file in files if file.exists()}


def _size(file: Path) -> int:
    if file.is_dir():
        # A folder's time has a resolution of milliseconds, in which several files may be added.
        return zlib.crc32("/".join(sorted(path.name for path in file.iterdir())).encode())
    return file.stat().st_size


def packer_version(packer: Path, *, environ: Mapping[str, str], run: ProgramRunner, cache: AnswerCache) -> str:
    """The version; empty if the program is another `packer`, such as cracklib's."""
    answer = cache.get("version", packer)
    if answer is None:
        child_environ = environment.packer_probe_environment(environ)
        done = run([packer, "version"], environ=child_environ, timeout=_VERSION_TIMEOUT_S)
        match = _VERSION_LINE.search(done.stdout)
        answer = match[1] if done.returncode == 0 and match else ""
        cache.put(answer, [packer], "version", packer)
    return answer


def installed_plugins(
    packer: Path, *, environ: Mapping[str, str], run: ProgramRunner, cache: AnswerCache
) -> dict[str, Plugin]:
    """The plugins that this Packer finds in this environment, by their source."""
    child_environ = environment.packer_probe_environment(environ)
    names = ("PACKER_PLUGIN_PATH", "PACKER_CONFIG_DIR", "PACKER_CONFIG", "HOME", "XDG_CONFIG_HOME")
    key = ("plugins", packer, *(child_environ.get(name, "") for name in names))
    answer = cache.get(*key)
    if answer is not None:
        return parse_plugins(answer)

    def list_plugins() -> str:
        done = run([packer, "plugins", "installed"], environ=child_environ, timeout=_PLUGINS_TIMEOUT_S)
        return done.stdout if done.returncode == 0 else ""

    output = list_plugins()
    plugins = parse_plugins(output)
    if plugins:
        # The times of these folders show whether a plugin was added or removed. Without a plugin nothing is cached.
        files = {plugin.path for plugin in plugins.values()}
        owners = {file.parents[1] for file in files}
        beside = {path for owner in owners for path in owner.iterdir() if path.is_dir()}
        # Another run may be installing a plugin now: a second list must be the same as the first.
        cache.put(output, {packer} | files | owners | beside, *key, is_current=lambda: list_plugins() == output)
    return plugins


def parse_plugins(output: str) -> dict[str, Plugin]:
    """Parse `packer plugins installed`, one path a line: host/owner/name/packer-plugin-name_version_system.

    Of several releases of a plugin, the newest counts.
    """
    found = []
    for line in output.splitlines():
        path = Path(line.strip())
        match = _PLUGIN_FILE.match(path.name)
        if match and match["name"] == path.parent.name and is_at_least(match["version"], "0"):
            found.append(Plugin(match["version"], path))
    found.sort(key=lambda plugin: Version(plugin.version))
    return {"/".join(plugin.path.parts[-4:-1]): plugin for plugin in found}


def is_at_least(version: str, lowest: str) -> bool:
    """Whether `version` is a release not older than `lowest`. Packer's constraints reject a pre-release."""
    try:
        return Version(version) >= Version(lowest) and not Version(version).is_prerelease
    except InvalidVersion:
        return False
