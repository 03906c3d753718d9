"""Downloads HashiCorp's releases of Packer and its plugins into the cache, at the pinned versions.

imagegen downloads Packer and verifies HashiCorp's signature. Packer downloads its plugins and verifies their checksums;
it installs them in a temporary folder, from which they are moved into the cache.
Touches the network and the cache folder. Nothing in the cache is partial or unverified.
"""

import dataclasses
import platform
import re
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
from imagegen.build.process import Completed, ProgramRunner, ProgramStreamer
from imagegen.build.toolchain import PACKER, NeededPlugin
from imagegen.fetch.download import fetch
from imagegen.fetch.http import UnreachableError, Web, read_starts

HOST: Final = "releases.hashicorp.com"
FINGERPRINT: Final = "C874011F0AB405110D02105534365D9472D7468F"
LARGEST_BYTES: Final = 2**30

_KEY_FILE: Final = Path(__file__).with_name("hashicorp-releases.asc")
# A list of checksums has about two thousand bytes, a signature about six hundred.
_LARGEST_TEXT: Final = 2**16
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
_HINT: Final = (
    "something changes files on their way from HashiCorp: find out what; if you install Packer yourself and it is on "
    "PATH, it is used instead (https://developer.hashicorp.com/packer/install)"
)


@dataclasses.dataclass(frozen=True)
class ToolContext:
    """What it takes to find, download and build tools."""

    environ: Mapping[str, str]
    cache: Path
    console: Console
    run: ProgramRunner
    stream: ProgramStreamer

    @property
    def plugin_folder(self) -> Path:
        """Where the cache's plugins are: a folder for PACKER_PLUGIN_PATH."""
        return self.cache / "plugins"


@dataclasses.dataclass
class OfficialReleases:
    """HashiCorp's releases. Only those that the key with this fingerprint signed are used."""

    key_file: Path = _KEY_FILE
    fingerprint: str = FINGERPRINT

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Raise UnreachableError, within seconds, if HashiCorp's server cannot be reached."""
        read_starts([_url("SHA256SUMS")], 1, environ=environ)

    def fetch_packer(self, binary: Path, *, environ: Mapping[str, str], console: Console) -> None:
        """Put Packer at `binary`, in a folder of its own. UnreachableError, within seconds, if it cannot be downloaded.

        A wrong signature or checksum is a VerificationError.
        """
        archive = f"{system_name()}.zip"
        with console.task(f"asking {HOST} for packer {PACKER.version}", None):
            # The archive is probed too: a web filter may pass texts and block programs.
            urls = [_url("SHA256SUMS"), _url("SHA256SUMS.sig"), _url(archive)]
            sums, signature, _ = read_starts(urls, _LARGEST_TEXT, environ=environ)
        self._verify(sums, signature)
        digest = _digest(sums, _name(archive))
        with tempfile.TemporaryDirectory(prefix=".building-", dir=binary.parents[1]) as temporary:
            zipped, unpacked = Path(temporary, "packer.zip"), Path(temporary, "out", binary.name)
            try:
                fetch(urls[-1], zipped, Web(environ=environ, console=console), expected_sha256=digest)
            except (ConfigError, RefusedError) as error:
                raise UnreachableError(error.message) from error
            unpack(zipped, unpacked)
            replace_folder(unpacked.parent, binary.parent, Path(temporary, "old"))

    def _verify(self, sums: bytes, signature: bytes) -> None:
        try:
            from imagegen.build import openpgp
        except ImportError as error:
            message = "signatures cannot be verified on this machine, because it has no package pysequoia"
            raise UnreachableError(message) from error
        try:
            certificate = openpgp.read_certificate(self.key_file.read_bytes())
        except openpgp.SignatureError as error:
            raise VerificationError(f"{self.key_file} cannot be used: {error}") from error
        fingerprint = certificate.fingerprint.upper()
        if fingerprint != self.fingerprint:
            raise VerificationError(f"{self.key_file} holds the key {fingerprint}, not {self.fingerprint}")
        try:
            openpgp.verify(sums, signature, certificate)
        except openpgp.SignatureError as error:
            raise VerificationError(
                f"the signature of {_url('SHA256SUMS')} is not HashiCorp's: {error}", hint=_HINT
            ) from error


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
        done = context.run([packer, "plugins", "install", *arguments], environ=child_environ, timeout=timeout)
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


def _digest(sums: bytes, name: str) -> str:
    digests = re.findall(rf"^([0-9a-f]{{64}})  {re.escape(name)}$", sums.decode(errors="replace"), re.MULTILINE)
    if len(digests) != 1:
        raise VerificationError(f"{_url('SHA256SUMS')} must have one checksum for {name}, not {len(digests)}")
    return str(digests[0])


def system_name() -> str:
    """HashiCorp's name of this platform, such as `linux_amd64`. UnreachableError if there are no releases for it."""
    system = next((name for name in _SYSTEMS if sys.platform.startswith(name)), "")
    machine = _MACHINES.get(platform.machine().lower(), "")
    if not system or not machine:
        raise UnreachableError(f"HashiCorp releases no Packer for {sys.platform} on {platform.machine()}")
    return f"{system}_{machine}"


def _name(what: str) -> str:
    return f"packer_{_version()}_{what}"


def _url(what: str) -> str:
    return f"https://{HOST}/packer/{_version()}/{_name(what)}"


def _version() -> str:
    return PACKER.version.removeprefix("v")
