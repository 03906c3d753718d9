"""Puts plugins into the cache, downloaded by Packer or built from source. Packer installs them in a temporary folder,
from which they are moved into the cache.
"""

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from imagegen.artifacts.connection import UnreachableError
from imagegen.build import environment
from imagegen.build.process import Completed, ProgramRunner, ProgramStreamer
from imagegen.build.toolchain import NeededPlugin
from imagegen.console import Console
from imagegen.errors import ToolError, VerificationError

_INSTALL_TIMEOUT_S: Final = 120
# For an archive of sixty megabytes. On a slower line it is about as fast to build the plugin.
_FETCH_TIMEOUT_S: Final = 240
_LAST_LINES: Final = 20
# Part of Packer's message for an archive with another sha256 than HashiCorp's list.
_WRONG_BYTES: Final = "did not match"


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


def install_released(plugin: NeededPlugin, *, packer: Path, context: ToolContext) -> None:
    """Let Packer download a plugin at its pinned version; it checks the sha256. UnreachableError where it cannot."""
    try:
        done = _install([plugin.source, plugin.pin.version], packer, context, _FETCH_TIMEOUT_S)
    except TimeoutError as error:
        raise UnreachableError(f"Packer did not download the plugin {plugin.name} in time") from error
    if done.returncode != 0:
        output = _tail(done)
        if any(_WRONG_BYTES in line for line in output):
            raise VerificationError(
                f"the plugin {plugin.name} that Packer downloads has the wrong checksum", details=output
            )
        reason = output[-1].strip(" \t*") if output else "no reason given"
        raise UnreachableError(f"Packer cannot download the plugin {plugin.name}: {reason}")


def install_built(binary: Path, plugin: NeededPlugin, *, packer: Path, context: ToolContext) -> None:
    """Let Packer install a plugin that was built here."""
    done = _install(["--path", binary, plugin.source], packer, context, _INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise ToolError(f"Packer rejects the plugin {plugin.name} that was built here", details=_tail(done))


def _install(arguments: Sequence[str | Path], packer: Path, context: ToolContext, timeout: float) -> Completed:
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


def _tail(done: Completed) -> list[str]:
    return (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
