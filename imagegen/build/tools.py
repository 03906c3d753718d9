"""Finds the Packer and the plugins that a build needs: installed ones, or those in imagegen's cache.

What is missing is downloaded from HashiCorp into the cache at fixed versions, or built with Go where that is not
possible. imagegen compares Packer's archive with its sha256; Packer downloads its plugins and verifies their checksums.
Nothing in the cache is partial or unverified. Touches the network, the cache folder and processes.
"""

import collections
import dataclasses
import functools
import json
import math
import os
import platform
import re
import shlex
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, RefusedError, ToolError, VerificationError
from imagegen.base.files import replace_folder
from imagegen.base.lines import counted
from imagegen.base.locks import locked
from imagegen.build import process
from imagegen.build.process import Completed, ProgramRunner, Programs
from imagegen.fetch.download import fetch
from imagegen.fetch.http import UnreachableError, Web, read_starts


@dataclasses.dataclass(frozen=True)
class Pin:
    """One Go module that is built at one version."""

    module: str
    version: str
    build_s: int
    """How long it takes to build on two cores with an empty Go cache; measured."""

    @property
    def name(self) -> str:
        return self.module.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class NeededPlugin:
    """A plugin of Packer that a provider needs."""

    name: str
    lowest: str
    """The lowest version that will do."""
    pin: Pin

    @property
    def source(self) -> str:
        """What it is called in `required_plugins` and in `packer plugins install`."""
        return self.pin.module.replace("packer-plugin-", "")


@dataclasses.dataclass(frozen=True)
class Plugin:
    """One installed plugin."""

    version: str
    path: Path


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """A Packer that is new enough, with its plugins."""

    packer: Path
    packer_version: str
    plugins: Mapping[str, Plugin]
    environment: Mapping[str, str]


def tool_exports_text(tools: Toolchain) -> str:
    """The variables that make a plain `packer` use this toolchain, and its PATH, as lines for a POSIX shell."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(tools.environment.items())]
    return "\n".join([*lines, f'export PATH={shlex.quote(str(tools.packer.parent))}:"$PATH"']) + "\n"


# `packer plugins install --path`, `packer validate` and the machine-readable output are as expected from here on.
LOWEST_PACKER: Final = "1.14.0"

PACKER: Final = Pin("github.com/hashicorp/packer", "v1.16.0", 260)

# The sha256 of HashiCorp's archives of this version, each read in two places. Where there is none, Go builds Packer.
PACKER_ARCHIVES: Final = {
    "darwin_arm64": "6530042cf8f8a1f96b6607cb22b5be298be53b400cd4a2c81ab8b946964fccda",
    "linux_amd64": "5edcd14ab59b535040c512dbecd6ec9ef976a000b073c19d93e4c431c948581e",
    "linux_arm64": "cf18f03460d92265d49b56befff333e80641d845822799eab04357c39f75b5d7",
}


HOST: Final = "releases.hashicorp.com"
LARGEST_BYTES: Final = 2**30

_SYSTEMS: Final = ("linux", "darwin", "freebsd", "openbsd", "netbsd")
_MACHINES: Final = {
    **{"x86_64": "amd64", "amd64": "amd64", "i386": "386", "i686": "386"},
    **{"aarch64": "arm64", "arm64": "arm64"},
}
# For an archive of sixty megabytes. On a slower line it is about as fast to build the plugin.
_FETCH_TIMEOUT_S: Final = 240
LAST_LINES: Final = 20
# Part of Packer's message for an archive with another sha256 than HashiCorp's list.
_WRONG_BYTES: Final = "did not match"
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


@dataclasses.dataclass(frozen=True)
class ToolContext:
    """What it takes to find, download and build tools."""

    environ: Mapping[str, str]
    cache: Path
    console: Console
    programs: Programs

    @property
    def plugin_folder(self) -> Path:
        """Where the cache's plugins are: a folder for PACKER_PLUGIN_PATH."""
        return self.cache / "plugins"


@dataclasses.dataclass(frozen=True)
class OfficialReleases:
    """HashiCorp's releases of Packer, with the sha256 of the archive of each platform."""

    archives: Mapping[str, str] = dataclasses.field(default_factory=lambda: PACKER_ARCHIVES)

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Raise UnreachableError, within seconds, if HashiCorp's server cannot be reached."""
        read_starts([_url("SHA256SUMS")], 1, environ=environ)

    def fetch_packer(self, binary: Path, *, environ: Mapping[str, str], console: Console) -> None:
        """Put Packer at `binary`, in a folder of its own. UnreachableError, within seconds, if it cannot be downloaded.

        An archive with another sha256 is a VerificationError.
        """
        system = system_name()
        if system not in self.archives:
            raise UnreachableError(f"imagegen knows no sha256 of HashiCorp's Packer for {system}")
        url = _url(f"{system}.zip")
        with console.task(f"asking {HOST} for packer {PACKER.version}", None):
            read_starts([url], 1, environ=environ)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=binary.parents[1]) as temporary:
            zipped, unpacked = Path(temporary, "packer.zip"), Path(temporary, "out", binary.name)
            try:
                fetch(url, zipped, Web(environ=environ, console=console), expected_sha256=self.archives[system])
            except (ConfigError, RefusedError) as error:
                raise UnreachableError(error.message) from error
            unpack(zipped, unpacked)
            replace_folder(unpacked.parent, binary.parent, Path(temporary, "old"))


def install_released(plugin: NeededPlugin, *, packer: Path, context: ToolContext) -> None:
    """Let Packer download a plugin at its pinned version; it checks the sha256. UnreachableError where it cannot."""
    try:
        done = install_plugin([plugin.source, plugin.pin.version], packer, context, _FETCH_TIMEOUT_S)
    except TimeoutError as error:
        raise UnreachableError(f"Packer did not download the plugin {plugin.name} in time") from error
    if done.returncode != 0:
        output = last_lines(done)
        if any(_WRONG_BYTES in line for line in output):
            raise VerificationError(
                f"the plugin {plugin.name} that Packer downloads has the wrong checksum", details=output
            )
        reason = output[-1].strip(" \t*") if output else "no reason given"
        raise UnreachableError(f"Packer cannot download the plugin {plugin.name}: {reason}")


def install_plugin(arguments: Sequence[str | Path], packer: Path, context: ToolContext, timeout: float) -> Completed:
    """Let Packer install a plugin with these arguments, and move its files into the cache."""
    with tempfile.TemporaryDirectory(prefix=".building-", dir=context.cache) as temporary:
        installed = Path(temporary, "plugins")
        installed.mkdir()
        child_environ = {
            **process.packer_probe_environment(context.environ),
            "PACKER_PLUGIN_PATH": str(installed),
            "PACKER_CONFIG_DIR": temporary,
            # Packer unpacks a plugin in the temporary folder under a name that other users can guess.
            "TMPDIR": temporary,
        }
        done = context.programs.run([packer, "plugins", "install", *arguments], environ=child_environ, timeout=timeout)
        if done.returncode == 0:
            # The checksum first: Packer rejects a plugin without a checksum, and ignores a checksum without a plugin.
            files = [file for file in installed.rglob("*") if file.is_file()]
            for file in sorted(files, key=lambda file: (not file.name.endswith("_SHA256SUM"), file.name)):
                place = context.plugin_folder / file.relative_to(installed)
                place.parent.mkdir(parents=True, exist_ok=True)
                file.replace(place)
    return done


def last_lines(done: Completed) -> list[str]:
    """The end of what a program printed."""
    return (done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:]


def unpack(archive: Path, into: Path) -> None:
    """Write the archive's member with the name of `into` to `into`. Other members are ignored."""
    into.parent.mkdir()
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [member for member in opened.infolist() if member.filename == into.name]
            if len(members) != 1:
                raise VerificationError(f"HashiCorp's archive must hold one file {into.name}, not {len(members)}")
            # zipfile never unpacks more than the announced size.
            if members[0].file_size > LARGEST_BYTES:
                raise VerificationError(f"{into.name} in HashiCorp's archive has {members[0].file_size} bytes")
            with opened.open(members[0]) as content, into.open("xb") as file:
                shutil.copyfileobj(content, file)
    except _UNREADABLE as error:
        raise VerificationError(f"HashiCorp's archive of {into.name} cannot be unpacked: {error}") from error
    into.chmod(0o755)


def system_name() -> str:
    """HashiCorp's name of this platform, such as `linux_amd64`. UnreachableError if there are no releases for it."""
    system = next((name for name in _SYSTEMS if sys.platform.startswith(name)), "")
    machine = _MACHINES.get(platform.machine().lower(), "")
    if not system or not machine:
        raise UnreachableError(f"HashiCorp releases no Packer for {sys.platform} on {platform.machine()}")
    return f"{system}_{machine}"


def _url(what: str) -> str:
    version = PACKER.version.removeprefix("v")
    return f"https://{HOST}/packer/{version}/packer_{version}_{what}"


# Measured on two cores with an empty Go cache: 260 s for the slowest.
_BUILD_TIMEOUT_S: Final = 3600
_DOWNLOAD_TIMEOUT_S: Final = 900
_INSTALL_TIMEOUT_S: Final = 120
_PREFIX: Final = ".building-"


def built_packer(cache: Path) -> Path:
    """The path of the cache's Packer, which may not exist."""
    return cache / f"packer-{PACKER.version}" / "packer"


def remove_abandoned(cache: Path) -> None:
    """Remove what killed builds left. The caller holds the lock of the cache, so no other build is running."""
    for folder in cache.glob(f"{_PREFIX}*"):
        shutil.rmtree(folder)


def build(context: ToolContext, go: Path, packer: Path | None, missing: Sequence[NeededPlugin]) -> None:
    """Build the missing plugins, and Packer if there is none. Replaces earlier builds."""
    jobs = [*([] if packer else [PACKER]), *(plugin.pin for plugin in missing)]
    context.console.say(announcement(packer is None, len(missing), jobs))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=context.cache) as temporary:
        sources = [_download_source(context, go, pin, Path(temporary, pin.name)) for pin in jobs]
        binaries = {source.pin.name: _compile(context, go, source) for source in sources}
        if packer is None:
            packer = built_packer(context.cache)
            replace_folder(binaries[PACKER.name].parent, packer.parent, Path(temporary, "old"))
        for plugin in missing:
            done = install_plugin(
                ["--path", binaries[plugin.pin.name], plugin.source], packer, context, _INSTALL_TIMEOUT_S
            )
            if done.returncode != 0:
                raise ToolError(
                    f"Packer rejects the plugin {plugin.name} that was built here", details=last_lines(done)
                )


def announcement(with_packer: bool, plugin_count: int, jobs: Sequence[Pin]) -> str:
    """The message that says what will be built, and how long that takes."""
    parts = [*([f"packer {PACKER.version}"] if with_packer else []), counted(plugin_count, "plugin")]
    minutes = counted(math.ceil(sum(job.build_s for job in jobs) / 60), "minute")
    return f"building {' and '.join(parts[: 1 + bool(plugin_count)])} from source: about {minutes} on 2 cores, once"


@dataclasses.dataclass(frozen=True)
class _Source:
    """A Go module that is ready to build."""

    pin: Pin
    folder: Path
    binary: Path


def _download_source(context: ToolContext, go: Path, pin: Pin, place: Path) -> _Source:
    place.mkdir()
    # The working directory is outside any module, so that Go reads no go.mod.
    argv: list[str | Path] = [go, "mod", "download", "-json", f"{pin.module}@{pin.version}"]
    with context.console.task(f"downloading {pin.name} {pin.version}", None):
        done = context.programs.run(
            argv, environ=process.go_environment(context.environ), cwd=place, timeout=_DOWNLOAD_TIMEOUT_S
        )
        report = json.loads(done.stdout) if done.stdout.lstrip().startswith("{") else {}
        if done.returncode != 0 or "Dir" not in report:
            raise ToolError(
                f"Go cannot download {pin.module} {pin.version}",
                hint="check the network, GOPROXY and HTTPS_PROXY",
                details=(report.get("Error") or done.stderr).strip().splitlines()[-LAST_LINES:],
            )
    # The module cache is read-only, and Go applies a module's `replace` lines only when it is the main module.
    source = place / "source"
    shutil.copytree(report["Dir"], source, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(source):
        Path(folder).chmod(stat.S_IRWXU)
    return _Source(pin, source, place / "out" / pin.name)


def _compile(context: ToolContext, go: Path, source: _Source) -> Path:
    pin = source.pin
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    # Without it a plugin reports a development version, which version constraints reject.
    flags = () if pin is PACKER else ("-ldflags", f"-X {pin.module}/version.VersionPrerelease=")
    with context.console.task(f"building {pin.name} {pin.version}", None) as advance:

        def on_line(line: str) -> None:
            last.append(line)
            advance(1)

        code = context.programs.stream(
            [go, "build", "-v", "-buildvcs=false", *flags, "-o", source.binary, "."],
            environ=process.go_environment(context.environ),
            cwd=source.folder,
            timeout=_BUILD_TIMEOUT_S,
            on_line=on_line,
        )
        if code != 0 or not source.binary.is_file():
            # A killed compiler prints nothing; systems kill it when memory runs out.
            raise ToolError(
                f"Go cannot build {pin.module} {pin.version}", details=[*last, f"go build ended with code {code}"]
            )
    return source.binary


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
        built = built_packer(context.cache)
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
        places: tuple[Callable[[], dict[str, Plugin]], ...] = (
            functools.partial(installed_plugins, packer, context),
            functools.partial(_cached_plugins, context.plugin_folder),
        )
        for find in places:
            plugins = find()
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
        elif found.packer == built_packer(self.context.cache):
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
        remove_abandoned(context.cache)
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
            build(context, go, found.packer, found.missing)
            found = search.find()
    if found.tools is None:
        raise ToolError("the tools that imagegen built cannot be used", details=found.faults)
    return found.tools


def _download(search: _Search, found: _Found, releases: OfficialReleases) -> _Found:
    context = search.context
    if found.packer is None:
        binary = built_packer(context.cache)
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
    done = run([packer, "version"], environ=process.packer_probe_environment(environ), timeout=10)
    match = _VERSION_LINE.search(done.stdout)
    return match[1] if done.returncode == 0 and match else ""


def installed_plugins(packer: Path, context: ToolContext) -> dict[str, Plugin]:
    """The plugins that this Packer finds in the user's environment, by their source."""
    # Packer reads every plugin file, which takes half a second.
    child_environ = process.packer_probe_environment(context.environ)
    done = context.programs.run([packer, "plugins", "installed"], environ=child_environ, timeout=20)
    return parse_plugins(done.stdout) if done.returncode == 0 else {}


def _cached_plugins(folder: Path) -> dict[str, Plugin]:
    """The plugins in imagegen's cache: those with a checksum, which Packer reads before it starts one."""
    files = folder.glob("*/*/*/packer-plugin-*")
    return parse_plugins("\n".join(str(file) for file in files if Path(f"{file}_SHA256SUM").is_file()))


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
