"""Finds the Packer and the plugins that a build needs: installed ones, or those in imagegen's cache.

What is missing is downloaded from HashiCorp into the cache, or built with Go where that is not possible.
"""

import dataclasses
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from imagegen.base.console import Console
from imagegen.base.errors import ToolError
from imagegen.base.locks import locked
from imagegen.build import environment, go_build
from imagegen.build.process import ProgramRunner, Programs
from imagegen.build.release import OfficialReleases, ToolContext, install_released
from imagegen.build.toolchain import LOWEST_PACKER, NeededPlugin, Plugin, Toolchain
from imagegen.fetch.connection import UnreachableError

# Enough for a slow machine to download or build Packer and its plugins one after another.
_LOCK_WAIT_S: Final = 3600

_OFFICIAL: Final = OfficialReleases()
_PROGRAMS: Final = Programs()
_VERSION_LINE = re.compile(r"(?m)^Packer v(\S+)")
_PLUGIN_FILE = re.compile(r"packer-plugin-(?P<name>[a-z0-9-]+)_v(?P<version>[^_]+)_x[0-9.]+_")


def find_tools(
    *,
    environ: Mapping[str, str],
    console: Console,
    build: bool = True,
    needed: Iterable[NeededPlugin],
    programs: Programs = _PROGRAMS,
    releases: OfficialReleases = _OFFICIAL,
) -> Toolchain:
    """A Packer with every plugin of `needed`; otherwise a ToolError with the commands to run.

    What is missing is downloaded or built, unless `build` is false.
    """
    search = _Search(ToolContext(environ, cache_folder(environ), console, programs), tuple(needed))
    go = shutil.which("go", path=environ.get("PATH", ""))
    try:
        found = search.find()
        if found.tools is not None:
            if found.not_packer is not None:
                console.warn(f"{'; '.join(found.faults)}; {found.tools.packer} is used instead")
            return found.tools
        if not build or not can_be_provided(search.needed):
            raise search.refusal(found, has_go=go is not None)
        for fault in found.faults:
            console.say(fault)
        return _provide(search, releases, Path(go) if go else None)
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


@dataclasses.dataclass(frozen=True)
class _Search:
    """Finds what is installed in one environment."""

    context: ToolContext
    needed: tuple[NeededPlugin, ...]

    def find(self) -> _Found:
        """The first Packer that runs and is new enough, and the first plugin folder that has what is needed."""
        context = self.context
        on_path = shutil.which("packer", path=context.environ.get("PATH", ""))
        built = go_build.built_packer(context.cache)
        seen = _Found(None, None, self.needed, () if on_path else ("packer is not on PATH",))
        for packer in [*([Path(on_path)] if on_path else []), *([built] if built.is_file() else [])]:
            is_packer = False
            try:
                version = packer_version(packer, environ=context.environ, run=context.programs.run)
                if is_at_least(version, LOWEST_PACKER):
                    return self._with_plugins(packer, version, seen)
                is_packer = bool(version)
                too_old = f"{packer} has version {version}; the lowest supported version is {LOWEST_PACKER}"
                fault = too_old if is_packer else f"{packer} is not HashiCorp's Packer"
            except (TimeoutError, ToolError) as error:
                fault = str(error)
            not_packer = packer if not is_packer and packer != built else seen.not_packer
            seen = dataclasses.replace(seen, faults=(*seen.faults, fault), not_packer=not_packer)
        return seen

    def _with_plugins(self, packer: Path, version: str, seen: _Found) -> _Found:
        context = self.context
        missing: tuple[NeededPlugin, ...] = ()
        for environ in (context.environ, {**context.environ, "PACKER_PLUGIN_PATH": str(context.plugin_folder)}):
            plugins = installed_plugins(packer, environ=environ, run=context.programs.run)
            missing = tuple(
                plugin
                for plugin in self.needed
                if plugin.source not in plugins or not is_at_least(plugins[plugin.source].version, plugin.lowest)
            )
            if not missing:
                return dataclasses.replace(
                    seen, tools=self._toolchain(packer, version, plugins), packer=packer, missing=()
                )
        faults = [f"Packer finds no plugin {plugin.name} >= {plugin.lowest}" for plugin in missing]
        return dataclasses.replace(seen, packer=packer, missing=missing, faults=(*seen.faults, *faults))

    def refusal(self, found: _Found, *, has_go: bool) -> ToolError:
        """The error that names what is missing, and the commands that install it."""
        commands = []
        packer = "packer"
        if found.not_packer is not None:
            commands.append(f"# remove {found.not_packer}, or put HashiCorp's Packer before it on PATH")
        if found.packer is None:
            commands.append(_packer_command())
        elif found.packer == go_build.built_packer(self.context.cache):
            place = shlex.quote(str(self.context.plugin_folder))
            packer = f"PACKER_PLUGIN_PATH={place} {shlex.quote(str(found.packer))}"
        commands += [f"{packer} plugins install {plugin.source}" for plugin in found.missing]
        hint = "\n  ".join(["run", *commands])
        if not has_go and can_be_provided(self.needed):
            hint += "\nor install Go (https://go.dev/doc/install) and run this again: imagegen then builds them itself"
        missing = "Packer is" if found.packer is None else "Packer plugins are"
        details = [*found.faults, *([found.obstacle] if found.obstacle else [])]
        return ToolError(f"{missing} missing or too old", hint=hint, details=details)

    def _toolchain(self, packer: Path, version: str, plugins: Mapping[str, Plugin]) -> Toolchain:
        root = next((plugin.path.parents[3] for plugin in plugins.values()), self.context.plugin_folder)
        environment = {
            "PACKER_PLUGIN_PATH": str(root),
            # The user's Packer settings must not change a build.
            "PACKER_CONFIG_DIR": str(self.context.cache / "packer-config"),
            "CHECKPOINT_DISABLE": "1",
            "PACKER_NO_COLOR": "1",
        }
        seen = {plugin.name: plugins[plugin.source] for plugin in self.needed}
        return Toolchain(packer, version, dict(sorted(seen.items())), environment)


def _provide(search: _Search, releases: OfficialReleases, go: Path | None) -> Toolchain:
    context = search.context

    def waiting() -> None:
        context.console.say("another run is downloading or building the tools; waiting for it to end")

    with locked(context.cache / "tools.lock", wait_s=_LOCK_WAIT_S, waiting=waiting):
        go_build.remove_abandoned(context.cache)
        # Searched again under the lock: the run that held it may have provided everything.
        found = search.find()
        if found.tools is None:
            try:
                found = _download(search, found, releases)
            except UnreachableError as error:
                found = dataclasses.replace(search.find(), obstacle=str(error))
        if found.tools is None:
            if go is None:
                raise search.refusal(found, has_go=False)
            if found.obstacle:
                context.console.say(found.obstacle)
            go_build.build(context, go, found.packer, found.missing)
            found = search.find()
    if found.tools is None:
        raise ToolError("the tools that imagegen built cannot be used", details=found.faults)
    return found.tools


def _download(search: _Search, found: _Found, releases: OfficialReleases) -> _Found:
    context = search.context
    if found.packer is None:
        binary = go_build.built_packer(context.cache)
        releases.fetch_packer(binary, environ=context.environ, console=context.console)
        found = search.find()
    else:
        # Checked first, because Packer would retry for minutes.
        releases.check_reachable(context.environ)
    if found.packer is not None:
        for plugin in found.missing:
            with context.console.task(f"downloading the plugin {plugin.name} {plugin.pin.version}", None):
                install_released(plugin, packer=found.packer, context=context)
    return search.find()


def _packer_command() -> str:
    if sys.platform == "darwin":
        return "brew install hashicorp/tap/packer"
    return f"# install Packer {LOWEST_PACKER} or newer: https://developer.hashicorp.com/packer/install"


def packer_version(packer: Path, *, environ: Mapping[str, str], run: ProgramRunner) -> str:
    """The version; empty if the program is another `packer`, such as cracklib's."""
    # Packer prints its version in a tenth of a second.
    done = run([packer, "version"], environ=environment.packer_probe_environment(environ), timeout=10)
    match = _VERSION_LINE.search(done.stdout)
    return match[1] if done.returncode == 0 and match else ""


def installed_plugins(packer: Path, *, environ: Mapping[str, str], run: ProgramRunner) -> dict[str, Plugin]:
    """The plugins that this Packer finds in this environment, by their source."""
    # Packer reads every plugin file, which takes one second.
    child_environ = environment.packer_probe_environment(environ)
    done = run([packer, "plugins", "installed"], environ=child_environ, timeout=20)
    return parse_plugins(done.stdout) if done.returncode == 0 else {}


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
