"""Puts plugins into the cache: downloaded by Packer, or built before. Packer itself installs them, beside, and then
they are moved there.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from imagegen.artifacts.probe import UnreachableError
from imagegen.build import environment
from imagegen.errors import ToolError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.build.pins import NeededPlugin
    from imagegen.build.process import Completed, Run

_INSTALL_TIMEOUT_S: Final = 120
# An archive of sixty megabytes; on a slower line than this allows it is about as fast to build the plugin.
_FETCH_TIMEOUT_S: Final = 240
_LAST_LINES: Final = 20
# Packer's words for an archive that does not have the sha256 of HashiCorp's list.
_WRONG_BYTES: Final = "did not match"


class Shop(Protocol):
    """What installing needs."""

    @property
    def cache(self) -> Path:
        """The cache folder."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The caller's environment."""

    @property
    def run(self) -> Run:
        """What runs Packer."""


def plugin_folder(cache: Path) -> Path:
    """Where the cache's plugins are: a folder for PACKER_PLUGIN_PATH."""
    return cache / "plugins"


def install_released(plugin: NeededPlugin, *, packer: Path, shop: Shop) -> None:
    """Let Packer download a plugin at its pinned version; it checks the sha256. UnreachableError where it cannot."""
    words = [plugin.source, plugin.pin.version]
    try:
        done = _install(words, packer, shop, _FETCH_TIMEOUT_S)
    except TimeoutError as error:
        raise UnreachableError(f"Packer did not download the plugin {plugin.name} in time") from error
    if done.returncode != 0:
        said = _tail(done)
        if any(_WRONG_BYTES in line for line in said):
            raise VerificationError(
                f"the plugin {plugin.name} that Packer downloads has a wrong checksum", details=said
            )
        reason = said[-1].strip(" \t*") if said else "no reason given"
        raise UnreachableError(f"Packer cannot download the plugin {plugin.name}: {reason}")


def install_built(binary: Path, plugin: NeededPlugin, *, packer: Path, shop: Shop) -> None:
    """Let Packer install a plugin that was built here."""
    done = _install(["--path", binary, plugin.source], packer, shop, _INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        raise ToolError(f"Packer refuses the plugin {plugin.name} just built", details=_tail(done))


def _install(words: Sequence[str | Path], packer: Path, shop: Shop, timeout: float) -> Completed:
    with tempfile.TemporaryDirectory(prefix=".building-", dir=shop.cache) as temporary:
        installed = Path(temporary, "plugins")
        installed.mkdir()
        child_environ = {
            **environment.packer_probe_environment(shop.environ),
            "PACKER_PLUGIN_PATH": str(installed),
            "PACKER_CONFIG_DIR": temporary,
            # Packer unpacks a plugin in the folder for temporary files first, under a name that others can guess.
            "TMPDIR": temporary,
        }
        done = shop.run([packer, "plugins", "install", *words], environ=child_environ, timeout=timeout)
        if done.returncode == 0:
            _move_files(installed, plugin_folder(shop.cache))
    return done


def _move_files(source: Path, target: Path) -> None:
    # The checksum first: a plugin without one is not believed, and a checksum without a plugin is not seen.
    files = [file for file in source.rglob("*") if file.is_file()]
    for file in sorted(files, key=lambda file: (not file.name.endswith("_SHA256SUM"), file.name)):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)


def _tail(done: Completed) -> list[str]:
    return (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
