"""Finds the Packer and the plugins that a build needs: installed, or put once into the cache.

Into the cache come HashiCorp's releases where they can be had, or else what Go builds.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from imagegen.artifacts.probe import UnreachableError
from imagegen.build import go_build, pins, plugins, process
from imagegen.build.folder_lock import locked
from imagegen.build.installed import PluginFolder, installed_plugins, packer_version
from imagegen.build.memory import Memory
from imagegen.build.release import OfficialReleases
from imagegen.build.toolchain import Toolchain, is_at_least
from imagegen.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.build.pins import NeededPlugin
    from imagegen.build.process import Run
    from imagegen.console import Console

# Packer and its plugins, fetched or built one after another, on a slow machine.
_LOCK_WAIT_S: Final = 3600

_OFFICIAL: Final = OfficialReleases()


class Releases(Protocol):
    """Where HashiCorp's releases come from. Both raise UnreachableError, within seconds, where they do not come."""

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Ask whether they can be had."""

    def fetch_packer(self, binary: Path, *, environ: Mapping[str, str], console: Console) -> None:
        """Put Packer at `binary`, in a folder of its own."""


def find_tools(
    *,
    environ: Mapping[str, str],
    console: Console,
    build: bool = True,
    needed: Iterable[NeededPlugin],
    run: Run = process.run,
    stream: go_build.Stream = process.stream,
    releases: Releases = _OFFICIAL,
) -> Toolchain:
    """A Packer with every plugin of `needed`; ToolError with the commands that mend it.

    What is missing is fetched or built unless `build` is false.
    """
    search = _Search(environ, cache_folder(environ), tuple(needed), run)
    go = shutil.which("go", path=environ.get("PATH", ""))
    try:
        found = search.look()
        if found.tools is not None:
            if found.in_the_way is not None:
                console.warn(f"{'; '.join(found.faults)}; {found.tools.packer} is used instead")
            return found.tools
        if not build or not search.can_be_provided():
            raise search.refusal(found, go_is_there=go is not None)
        for fault in found.faults:
            console.say(fault)
        return _provided(search, releases, Path(go) if go else None, console, stream)
    except TimeoutError as overdue:
        hint = "run this command yourself to see what it waits for"
        raise ToolError(str(overdue), hint=hint) from overdue


def can_be_provided(needed: Iterable[NeededPlugin]) -> bool:
    """Whether the pinned versions, which a build fetches or builds where they are missing, are new enough."""
    return all(is_at_least(plugin.pin.version, plugin.lowest) for plugin in needed)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """imagegen's folder in the user's cache; a relative XDG_CACHE_HOME counts as unset, as its specification says."""
    chosen = environ.get("XDG_CACHE_HOME", "")
    if chosen.startswith("/"):
        return Path(chosen, "imagegen")
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise ToolError("there is no place for a cache", hint="set HOME or XDG_CACHE_HOME to an absolute path")
    return Path(home, ".cache", "imagegen")


@dataclasses.dataclass(frozen=True)
class _Found:
    tools: Toolchain | None
    packer: Path | None
    missing: tuple[NeededPlugin, ...]
    faults: tuple[str, ...]
    in_the_way: Path | None = None
    """The program on PATH that is called packer and is none."""
    obstacle: str = ""
    """Why what is missing could not be fetched, where that was tried."""


class _Search:
    """What is installed, seen from one environment."""

    def __init__(self, environ: Mapping[str, str], cache: Path, needed: tuple[NeededPlugin, ...], run: Run) -> None:
        self.environ = environ
        self.cache = cache
        self.needed = needed
        self.run = run
        self._memory = Memory(cache / "tools.json")

    def look(self) -> _Found:
        """The first Packer that answers and is new enough, and the first plugin folder that holds what is needed."""
        seen = _Found(None, None, self.needed, ())
        on_path = shutil.which("packer", path=self.environ.get("PATH", ""))
        built = go_build.built_packer(self.cache)
        if on_path is None:
            seen = dataclasses.replace(seen, faults=("packer is not on PATH",))
        candidates = [*([Path(on_path)] if on_path else []), *([built] if built.is_file() else [])]
        for packer in candidates:
            is_packer = False
            try:
                version = packer_version(packer, environ=self.environ, run=self.run, memory=self._memory)
                if version and is_at_least(version, pins.LOWEST_PACKER):
                    return self._with_plugins(packer, version, seen)
                is_packer = bool(version)
                too_old = f"{packer} is {version}; {pins.LOWEST_PACKER} is the oldest that will do"
                fault = too_old if is_packer else f"{packer} is not HashiCorp's Packer"
            except TimeoutError as overdue:
                fault = str(overdue)
            except ToolError as error:
                fault = error.message
            in_the_way = packer if not is_packer and packer != built else seen.in_the_way
            seen = dataclasses.replace(seen, faults=(*seen.faults, fault), in_the_way=in_the_way)
        return seen

    def _with_plugins(self, packer: Path, version: str, seen: _Found) -> _Found:
        own = {**self.environ, "PACKER_PLUGIN_PATH": str(plugins.plugin_folder(self.cache))}
        missing: tuple[NeededPlugin, ...] = ()
        for environ in (self.environ, own):
            folder = installed_plugins(packer, environ=environ, run=self.run, memory=self._memory)
            missing = tuple(plugin for plugin in self.needed if not _has(folder, plugin))
            if not missing:
                tools = self._toolchain(packer, version, folder)
                return dataclasses.replace(seen, tools=tools, packer=packer, missing=())
        faults = [f"Packer sees no plugin {plugin.name} >= {plugin.lowest}" for plugin in missing]
        return dataclasses.replace(seen, packer=packer, missing=missing, faults=(*seen.faults, *faults))

    def can_be_provided(self) -> bool:
        """Whether what is missing may be fetched or built."""
        return can_be_provided(self.needed)

    def refusal(self, found: _Found, *, go_is_there: bool) -> ToolError:
        """What is missing, and the commands that mend it."""
        commands = []
        packer = "packer"
        if found.in_the_way is not None:
            commands.append(f"# remove {found.in_the_way}, or put HashiCorp's Packer before it on PATH")
        if found.packer is None:
            commands.append(_packer_command())
        elif found.packer == go_build.built_packer(self.cache):
            place = shlex.quote(str(plugins.plugin_folder(self.cache)))
            packer = f"PACKER_PLUGIN_PATH={place} {shlex.quote(str(found.packer))}"
        commands += [f"{packer} plugins install {plugin.source}" for plugin in found.missing]
        hint = "run\n" + "\n".join(f"  {command}" for command in commands)
        if not go_is_there and self.can_be_provided():
            hint += "\nor install Go (https://go.dev/doc/install) and run this again: it then builds them itself"
        what = "Packer" if found.packer is None else "plugins of Packer"
        details = [*found.faults, *([found.obstacle] if found.obstacle else [])]
        return ToolError(f"{what} missing or too old", hint=hint, details=details)

    def _toolchain(self, packer: Path, version: str, folder: PluginFolder) -> Toolchain:
        environment = {
            "PACKER_PLUGIN_PATH": str(folder.root or plugins.plugin_folder(self.cache)),
            # The user's own Packer settings do not take part in a build.
            "PACKER_CONFIG_DIR": str(self.cache / "packer-config"),
            "CHECKPOINT_DISABLE": "1",
            "PACKER_NO_COLOR": "1",
        }
        seen = {plugin.name: folder.plugins[plugin.source] for plugin in self.needed}
        return Toolchain(packer, version, dict(sorted(seen.items())), environment)


def _has(folder: PluginFolder, needed: NeededPlugin) -> bool:
    plugin = folder.plugins.get(needed.source)
    return plugin is not None and is_at_least(plugin.version, needed.lowest)


def _provided(
    search: _Search, releases: Releases, go: Path | None, console: Console, stream: go_build.Stream
) -> Toolchain:
    def waiting() -> None:
        console.say("another run is fetching or building the tools; waiting for it")

    search.cache.mkdir(parents=True, exist_ok=True)
    with locked(search.cache / "tools.lock", wait_s=_LOCK_WAIT_S, waiting=waiting):
        go_build.remove_abandoned(search.cache)
        # Looked at again under the lock: whoever held it may have provided all of this.
        found = search.look()
        if found.tools is None:
            try:
                found = _fetched(search, found, releases, console)
            except UnreachableError as error:
                found = dataclasses.replace(search.look(), obstacle=str(error))
        if found.tools is None:
            if go is None:
                raise search.refusal(found, go_is_there=False)
            if found.obstacle:
                console.say(found.obstacle)
            shop = go_build.Workshop(go, search.cache, search.environ, console, search.run, stream)
            go_build.build(shop, found.packer, found.missing)
            found = search.look()
    if found.tools is None:
        raise ToolError("the tools that were built are not what is needed", details=found.faults)
    return found.tools


def _fetched(search: _Search, found: _Found, releases: Releases, console: Console) -> _Found:
    if found.packer is None:
        binary = go_build.built_packer(search.cache)
        releases.fetch_packer(binary, environ=search.environ, console=console)
        found = search.look()
    else:
        # Packer itself would try for minutes.
        releases.check_reachable(search.environ)
    if found.packer is not None:
        for plugin in found.missing:
            with console.task(f"downloading the plugin {plugin.name} {plugin.pin.version}", None):
                plugins.install_released(plugin, packer=found.packer, shop=search)
    return search.look()


def _packer_command() -> str:
    if sys.platform == "darwin":
        return "brew install hashicorp/tap/packer"
    return f"# install Packer {pins.LOWEST_PACKER} or newer: https://developer.hashicorp.com/packer/install"
