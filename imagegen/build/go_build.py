"""Builds Packer and its plugins from their Go modules, at the pinned versions, where nobody installed them.

Touches the cache folder only. Whatever appears in it is complete: everything is built in a folder beside and renamed.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.build import environment, pins
from imagegen.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imagegen.build.process import Run, Stream
    from imagegen.console import Console

# Measured on two cores with an empty Go cache: 260 s for the slowest.
_BUILD_TIMEOUT_S: Final = 3600
_DOWNLOAD_TIMEOUT_S: Final = 900
_INSTALL_TIMEOUT_S: Final = 120
_LAST_LINES: Final = 20
_PREFIX: Final = ".building-"


@dataclasses.dataclass(frozen=True)
class Workshop:
    """What a build needs: Go, a place, and ways to run and to tell."""

    go: Path
    cache: Path
    environ: Mapping[str, str]
    console: Console
    run: Run
    stream: Stream


def built_packer(cache: Path) -> Path:
    """Where the built Packer is, or would be."""
    return cache / f"packer-{pins.PACKER.version}" / "packer"


def plugin_folder(cache: Path) -> Path:
    """Where the built plugins are: a folder for PACKER_PLUGIN_PATH."""
    return cache / "plugins"


def remove_abandoned(cache: Path) -> None:
    """Remove what killed builds left; only for whoever may build, so that nobody else is building."""
    for folder in cache.glob(f"{_PREFIX}*"):
        shutil.rmtree(folder)


def build_packer(shop: Workshop) -> Path:
    """Build Packer, replacing one that was built before."""
    binary = built_packer(shop.cache)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=shop.cache) as temporary:
        made = _build(shop, pins.PACKER, "packer", Path(temporary))
        if binary.parent.exists():
            binary.parent.rename(Path(temporary, "old"))
        made.parent.rename(binary.parent)
    return binary


def build_plugin(shop: Workshop, name: str, *, packer: Path) -> None:
    """Build a plugin and let Packer install it into the cache's plugin folder."""
    pin = pins.PLUGINS[name]
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=shop.cache) as temporary:
        # Without it the plugin calls itself a development version, and version constraints refuse it.
        flags = ("-ldflags", f"-X {pin.module}/version.VersionPrerelease=")
        made = _build(shop, pin, f"packer-plugin-{name}", Path(temporary), flags)
        installed = Path(temporary, "plugins")
        installed.mkdir()
        child_environ = {
            **environment.packer_probe_environment(shop.environ),
            "PACKER_PLUGIN_PATH": str(installed),
            "PACKER_CONFIG_DIR": temporary,
        }
        argv: list[str | Path] = [packer, "plugins", "install", "--path", made, pins.SOURCES[name]]
        done = shop.run(argv, environ=child_environ, timeout=_INSTALL_TIMEOUT_S)
        if done.returncode != 0:
            raise ToolError(f"Packer refuses the plugin {name} just built", details=_tail(done.stdout + done.stderr))
        _move_files(installed, plugin_folder(shop.cache))


def _build(shop: Workshop, pin: pins.Pin, binary: str, temporary: Path, flags: tuple[str, ...] = ()) -> Path:
    child_environ = environment.go_environment(shop.environ)
    name = pin.module.rpartition("/")[2]
    with shop.console.task(f"downloading {name} {pin.version}", None):
        module = _download(shop, pin, cwd=temporary, environ=child_environ)
    source = _writable_copy(module, temporary / "source")
    made = temporary / "out" / binary
    made.parent.mkdir()
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    argv: list[str | Path] = [shop.go, "build", "-v", "-buildvcs=false", *flags, "-o", made, "."]
    with shop.console.task(f"building {name} {pin.version} (once; takes minutes)", None) as advance:
        on_line = _counting(last, advance)
        code = shop.stream(argv, environ=child_environ, cwd=source, timeout=_BUILD_TIMEOUT_S, on_line=on_line)
        if code != 0 or not made.is_file():
            raise ToolError(f"Go cannot build {pin.module} {pin.version}", details=list(last))
    return made


def _download(shop: Workshop, pin: pins.Pin, *, cwd: Path, environ: Mapping[str, str]) -> Path:
    # The working directory is outside of any module, so that no go.mod takes part.
    argv: list[str | Path] = [shop.go, "mod", "download", "-json", f"{pin.module}@{pin.version}"]
    done = shop.run(argv, environ=environ, cwd=cwd, timeout=_DOWNLOAD_TIMEOUT_S)
    reported = json.loads(done.stdout) if done.stdout.lstrip().startswith("{") else {}
    if done.returncode == 0 and "Dir" in reported:
        return Path(reported["Dir"])
    raise ToolError(
        f"Go cannot download {pin.module} {pin.version}",
        hint="check the network, GOPROXY and the proxy variables",
        details=_tail(reported.get("Error") or done.stderr),
    )


def _writable_copy(module: Path, copy: Path) -> Path:
    # The module cache is read-only, and Go honours a module's own `replace` lines only when it is the main module.
    shutil.copytree(module, copy, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(stat.S_IRWXU)
    return copy


def _counting(last: collections.deque[str], advance: Callable[[int], None]) -> Callable[[str], None]:
    def on_line(line: str) -> None:
        last.append(line)
        advance(1)

    return on_line


def _move_files(source: Path, target: Path) -> None:
    # The checksum first: a plugin without one is not believed, and a checksum without a plugin is not seen.
    files = [file for file in source.rglob("*") if file.is_file()]
    for file in sorted(files, key=lambda file: (not file.name.endswith("_SHA256SUM"), file.name)):
        place = target / file.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)


def _tail(text: str) -> list[str]:
    return text.strip().splitlines()[-_LAST_LINES:]
