"""Downloads HashiCorp's releases of Packer and its plugins into the cache, at the pinned versions.

imagegen downloads Packer and compares its sha256. Packer downloads its plugins and verifies their checksums;
it installs them in a temporary folder, from which they are moved into the cache.
Touches the network and the cache folder. Nothing in the cache is partial or unverified.
"""

import dataclasses
import platform
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from imagegen.base.console import Console
from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.base.files import replace_folder
from imagegen.build import environment
from imagegen.build.process import Completed, Programs
from imagegen.build.toolchain import PACKER, PACKER_ARCHIVES, NeededPlugin
from imagegen.fetch.connection import UnreachableError, read_starts
from imagegen.fetch.download import fetch

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
                fetch(url, zipped, environ=environ, console=console, expected_sha256=self.archives[system])
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
            **environment.packer_probe_environment(context.environ),
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
