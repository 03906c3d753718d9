"""Finds the Packer and the plugins that a build needs: installed ones, or those in imagegen's cache.

What is missing is downloaded from HashiCorp into the cache, or built with Go where that is not possible.
"""

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol

from imagegen.artifacts.connection import UnreachableError
from imagegen.build import go_build, pins, plugins, process
from imagegen.build.answer_cache import AnswerCache
from imagegen.build.folders import locked
from imagegen.build.installed import PluginFolder, installed_plugins, packer_version
from imagegen.build.pins import NeededPlugin
from imagegen.build.process import ProgramRunner
from imagegen.build.release import OfficialReleases
from imagegen.build.toolchain import Toolchain, is_at_least
from imagegen.console import Console
from imagegen.errors import ToolError

# Enough for a slow machine to download or build Packer and its plugins one after another.
_LOCK_WAIT_S: Final = 3600

_OFFICIAL: Final = OfficialReleases()


class Releases(Protocol):
    """Where releases come from. Both methods raise UnreachableError, within seconds, where that fails."""

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Check that releases can be downloaded."""

    def fetch_packer(self, binary: Path, *, environ: Mapping[str, str], console: Console) -> None:
        """Put Packer at `binary`, in a folder of its own."""


def find_tools(
    *,
    environ: Mapping[str, str],
    console: Console,
    build: bool = True,
    needed: Iterable[NeededPlugin],
    run: ProgramRunner = process.run,
    stream: go_build.Stream = process.stream,
    releases: Releases = _OFFICIAL,
) -> Toolchain:
    """A Packer with every plugin of `needed`; otherwise a ToolError with the commands to run.

    What is missing is downloaded or built, unless `build` is false.
    """
    search = _Search(environ, cache_folder(environ), tuple(needed), run)
    go = shutil.which("go", path=environ.get("PATH", ""))
    try:
        found = search.find()
        if found.tools is not None:
            if found.not_packer is not None:
                console.warn(f"{'; '.join(found.faults)}; {found.tools.packer} is used instead")
            return found.tools
        if not build or not search.can_be_provided():
            raise search.refusal(found, has_go=go is not None)
        for fault in found.faults:
            console.say(fault)
        return _provide(search, releases, Path(go) if go else None, console, stream)
    except TimeoutError as overdue:
        hint = "run this command yourself to see what it waits for"
        raise ToolError(str(overdue), hint=hint) from overdue


def can_be_provided(needed: Iterable[NeededPlugin]) -> bool:
    """Whether the pinned versions, which a build downloads or builds if they are missing, are new enough."""
    return all(is_at_least(plugin.pin.version, plugin.lowest) for plugin in needed)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """imagegen's folder in the user's cache. A relative XDG_CACHE_HOME counts as unset, as its specification says."""
    chosen = environ.get("XDG_CACHE_HOME", "")
    if chosen.startswith("/"):
        return Path(chosen, "imagegen")
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        raise ToolError("imagegen has no cache folder", hint="set HOME or XDG_CACHE_HOME to an absolute path")
    return Path(home, ".cache", "imagegen")


@dataclasses.dataclass(frozen=True)
class _Found:
    tools: Toolchain | None
    packer: Path | None
    missing: tuple[NeededPlugin, ...]
    faults: tuple[str, ...]
    not_packer: Path | None = None
    """The program on PATH that is named packer but is not HashiCorp's Packer."""
    obstacle: str = ""
    """Why the download of what is missing failed."""


class _Search:
    """Finds what is installed in one environment."""

    def __init__(
        self, environ: Mapping[str, str], cache: Path, needed: tuple[NeededPlugin, ...], run: ProgramRunner
    ) -> None:
        self.environ = environ
        self.cache = cache
        self.needed = needed
        self.run = run
        self._answers = AnswerCache(cache / "tools.json")

    def find(self) -> _Found:
        """The first Packer that runs and is new enough, and the first plugin folder that has what is needed."""
        seen = _Found(None, None, self.needed, ())
        on_path = shutil.which("packer", path=self.environ.get("PATH", ""))
        built = go_build.built_packer(self.cache)
        if on_path is None:
            seen = dataclasses.replace(seen, faults=("packer is not on PATH",))
        candidates = [*([Path(on_path)] if on_path else []), *([built] if built.is_file() else [])]
        for packer in candidates:
            is_packer = False
            try:
                version = packer_version(packer, environ=self.environ, run=self.run, cache=self._answers)
                if version and is_at_least(version, pins.LOWEST_PACKER):
                    return self._with_plugins(packer, version, seen)
                is_packer = bool(version)
                too_old = f"{packer} has version {version}; the lowest supported version is {pins.LOWEST_PACKER}"
                fault = too_old if is_packer else f"{packer} is not HashiCorp's Packer"
            except TimeoutError as overdue:
                fault = str(overdue)
            except ToolError as error:
                fault = error.message
            not_packer = packer if not is_packer and packer != built else seen.not_packer
            seen = dataclasses.replace(seen, faults=(*seen.faults, fault), not_packer=not_packer)
        return seen

    def _with_plugins(self, packer: Path, version: str, seen: _Found) -> _Found:
        own = {**self.environ, "PACKER_PLUGIN_PATH": str(plugins.plugin_folder(self.cache))}
        missing: tuple[NeededPlugin, ...] = ()
        for environ in (self.environ, own):
            folder = installed_plugins(packer, environ=environ, run=self.run, cache=self._answers)
            missing = tuple(plugin for plugin in self.needed if not _has(folder, plugin))
            if not missing:
                tools = self._toolchain(packer, version, folder)
                return dataclasses.replace(seen, tools=tools, packer=packer, missing=())
        faults = [f"Packer finds no plugin {plugin.name} >= {plugin.lowest}" for plugin in missing]
        return dataclasses.replace(seen, packer=packer, missing=missing, faults=(*seen.faults, *faults))

    def can_be_provided(self) -> bool:
        """Whether imagegen can download or build what is missing."""
        return can_be_provided(self.needed)

    def refusal(self, found: _Found, *, has_go: bool) -> ToolError:
        """The error that names what is missing, and the commands that install it."""
        commands = []
        packer = "packer"
        if found.not_packer is not None:
            commands.append(f"# remove {found.not_packer}, or put HashiCorp's Packer before it on PATH")
        if found.packer is None:
            commands.append(_packer_command())
        elif found.packer == go_build.built_packer(self.cache):
            place = shlex.quote(str(plugins.plugin_folder(self.cache)))
            packer = f"PACKER_PLUGIN_PATH={place} {shlex.quote(str(found.packer))}"
        commands += [f"{packer} plugins install {plugin.source}" for plugin in found.missing]
        hint = "run\n" + "\n".join(f"  {command}" for command in commands)
        if not has_go and self.can_be_provided():
            hint += "\nor install Go (https://go.dev/doc/install) and run this again: imagegen then builds them itself"
        missing = "Packer is" if found.packer is None else "Packer plugins are"
        details = [*found.faults, *([found.obstacle] if found.obstacle else [])]
        return ToolError(f"{missing} missing or too old", hint=hint, details=details)

    def _toolchain(self, packer: Path, version: str, folder: PluginFolder) -> Toolchain:
        environment = {
            "PACKER_PLUGIN_PATH": str(folder.root or plugins.plugin_folder(self.cache)),
            # The user's Packer settings must not change a build.
            "PACKER_CONFIG_DIR": str(self.cache / "packer-config"),
            "CHECKPOINT_DISABLE": "1",
            "PACKER_NO_COLOR": "1",
        }
        seen = {plugin.name: folder.plugins[plugin.source] for plugin in self.needed}
        return Toolchain(packer, version, dict(sorted(seen.items())), environment)


def _has(folder: PluginFolder, needed: NeededPlugin) -> bool:
    plugin = folder.plugins.get(needed.source)
    return plugin is not None and is_at_least(plugin.version, needed.lowest)


def _provide(
    search: _Search, releases: Releases, go: Path | None, console: Console, stream: go_build.Stream
) -> Toolchain:
    def waiting() -> None:
        console.say("another run is downloading or building the tools; waiting for it to end")

    search.cache.mkdir(parents=True, exist_ok=True)
    with locked(search.cache / "tools.lock", wait_s=_LOCK_WAIT_S, waiting=waiting):
        go_build.remove_abandoned(search.cache)
        # Searched again under the lock: the run that held it may have provided everything.
        found = search.find()
        if found.tools is None:
            try:
                found = _download(search, found, releases, console)
            except UnreachableError as error:
                found = dataclasses.replace(search.find(), obstacle=str(error))
        if found.tools is None:
            if go is None:
                raise search.refusal(found, has_go=False)
            if found.obstacle:
                console.say(found.obstacle)
            context = go_build.BuildContext(go, search.cache, search.environ, console, search.run, stream)
            go_build.build(context, found.packer, found.missing)
            found = search.find()
    if found.tools is None:
        raise ToolError("the tools that imagegen built cannot be used", details=found.faults)
    return found.tools


def _download(search: _Search, found: _Found, releases: Releases, console: Console) -> _Found:
    if found.packer is None:
        binary = go_build.built_packer(search.cache)
        releases.fetch_packer(binary, environ=search.environ, console=console)
        found = search.find()
    else:
        # Checked first, because Packer would retry for minutes.
        releases.check_reachable(search.environ)
    if found.packer is not None:
        for plugin in found.missing:
            with console.task(f"downloading the plugin {plugin.name} {plugin.pin.version}", None):
                plugins.install_released(plugin, packer=found.packer, context=search)
    return search.find()


def _packer_command() -> str:
    if sys.platform == "darwin":
        return "brew install hashicorp/tap/packer"
    return f"# install Packer {pins.LOWEST_PACKER} or newer: https://developer.hashicorp.com/packer/install"
