"""Finds out a Packer's version and plugins: runs it with the given runner, or takes an answer from the cache."""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from packaging.version import Version

from imagegen.build import environment
from imagegen.build.answer_cache import AnswerCache, cache_key
from imagegen.build.process import ProgramRunner
from imagegen.build.toolchain import Plugin, release

# Packer prints its version in a tenth of a second. For its list it reads every plugin file, which takes one second.
_VERSION_TIMEOUT_S: Final = 10
_PLUGINS_TIMEOUT_S: Final = 20
_VERSION_LINE = re.compile(r"(?m)^Packer v(\S+)")
_PLUGIN_FILE = re.compile(r"packer-plugin-(?P<name>[a-z0-9-]+)_v(?P<version>[^_]+)_x[0-9.]+_")


@dataclasses.dataclass(frozen=True)
class PluginFolder:
    """The plugins of one PACKER_PLUGIN_PATH by their source: the newest release of each."""

    root: Path | None
    plugins: Mapping[str, Plugin]


def packer_version(packer: Path, *, environ: Mapping[str, str], run: ProgramRunner, cache: AnswerCache) -> str | None:
    """The version; None if the program is another `packer`, such as cracklib's."""
    key = cache_key("version", packer)
    answer = cache.get(key)
    if answer is None:
        child_environ = environment.packer_probe_environment(environ)
        done = run([packer, "version"], environ=child_environ, timeout=_VERSION_TIMEOUT_S)
        match = _VERSION_LINE.search(done.stdout)
        answer = match[1] if done.returncode == 0 and match else ""
        cache.put(key, answer, [packer])
    return answer or None


def installed_plugins(
    packer: Path, *, environ: Mapping[str, str], run: ProgramRunner, cache: AnswerCache
) -> PluginFolder:
    """The plugins that this Packer finds in this environment."""
    child_environ = environment.packer_probe_environment(environ)
    names = ("PACKER_PLUGIN_PATH", "PACKER_CONFIG_DIR", "PACKER_CONFIG", "HOME", "XDG_CONFIG_HOME")
    key = cache_key("plugins", packer, *(child_environ.get(name, "") for name in names))
    answer = cache.get(key)
    if answer is not None:
        return parse_plugins(answer)

    def list_plugins() -> str:
        done = run([packer, "plugins", "installed"], environ=child_environ, timeout=_PLUGINS_TIMEOUT_S)
        return done.stdout if done.returncode == 0 else ""

    output = list_plugins()
    folder = parse_plugins(output)
    if folder.plugins:
        # The times of these folders show whether a plugin was added or removed. Without a plugin nothing is cached.
        files = [plugin.path for plugin in folder.plugins.values()]
        owners = {file.parents[1] for file in files}
        beside = {path for owner in owners for path in owner.iterdir() if path.is_dir()}
        # Another run may be installing a plugin now: a second list must be the same as the first.
        cache.put(key, output, sorted({packer, *files, *owners, *beside}), is_current=lambda: list_plugins() == output)
    return folder


def parse_plugins(output: str) -> PluginFolder:
    """Parse `packer plugins installed`, one path a line: host/owner/name/packer-plugin-name_version_system."""
    plugins: dict[str, Plugin] = {}
    root = None
    for line in output.splitlines():
        path = Path(line.strip())
        match = _PLUGIN_FILE.match(path.name)
        number = release(match["version"]) if match else None
        if match is None or number is None or path.parent.name != match["name"]:
            continue
        source = "/".join(path.parts[-4:-1])
        known = plugins.get(source)
        if known is None or number > Version(known.version):
            plugins[source] = Plugin(match["version"], path)
            root = path.parents[3]
    return PluginFolder(root, plugins)
