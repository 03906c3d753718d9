"""Builds Packer and its plugins from their Go modules at the pinned versions, where they cannot be downloaded.

Touches the cache folder only. Builds in a temporary folder and renames the result, so nothing in the cache is partial.
"""

import collections
import dataclasses
import json
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from imagegen.base.errors import ToolError
from imagegen.base.files import replace_folder
from imagegen.base.lines import counted
from imagegen.build import environment
from imagegen.build.release import LAST_LINES, ToolContext, install_plugin, last_lines
from imagegen.build.toolchain import PACKER, NeededPlugin, Pin

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
            argv, environ=environment.go_environment(context.environ), cwd=place, timeout=_DOWNLOAD_TIMEOUT_S
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
            environ=environment.go_environment(context.environ),
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
