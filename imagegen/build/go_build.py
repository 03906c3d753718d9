"""Builds Packer and its plugins from their Go modules, at the pinned versions, where they cannot be had otherwise.

Touches the cache folder only. Whatever appears in it is complete: everything is built in a folder beside and renamed.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import math
import os
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from imagegen.build import environment, pins, plugins
from imagegen.build.spare_memory import spare_memory_gb
from imagegen.build.stopping import stop_signals
from imagegen.errors import ToolError
from imagegen.files import replace_folder
from imagegen.lines import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from imagegen.build.process import Run
    from imagegen.console import Console

# Measured on two cores with an empty Go cache: 260 s for the slowest.
_BUILD_TIMEOUT_S: Final = 3600
_DOWNLOAD_TIMEOUT_S: Final = 900
_LAST_LINES: Final = 20
_PREFIX: Final = ".building-"


class Stream(Protocol):
    """What `process.stream` looks like to a build of which several run at a time."""

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str],
        cwd: Path | None,
        timeout: float,
        on_line: Callable[[str], None],
        watch: Callable[[], None] | None,
    ) -> int:
        """Run a program to its end, line by line; what `watch` raises ends it."""


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
    """Where the Packer of the cache is, or would be."""
    return cache / f"packer-{pins.PACKER.version}" / "packer"


def remove_abandoned(cache: Path) -> None:
    """Remove what killed builds left; only for whoever may build, so that nobody else is building."""
    for folder in cache.glob(f"{_PREFIX}*"):
        shutil.rmtree(folder)


def build(shop: Workshop, packer: Path | None, missing: Sequence[pins.NeededPlugin]) -> None:
    """Build the missing plugins, and Packer too where there is none, replacing what was built before."""
    jobs = [*([] if packer else [pins.PACKER]), *(plugin.pin for plugin in missing)]
    shop.console.say(announcement(packer is None, len(missing), jobs))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=shop.cache) as temporary:
        # Downloads on this thread, where an interrupt ends them.
        sources = [_source(shop, pin, Path(temporary, pin.name)) for pin in jobs]
        made = dict(zip((pin.name for pin in jobs), _compile_all(shop, sources), strict=True))
        if packer is None:
            packer = built_packer(shop.cache)
            replace_folder(made[pins.PACKER.name].parent, packer.parent, Path(temporary, "old"))
        for plugin in missing:
            plugins.install_built(made[plugin.pin.name], plugin, packer=packer, shop=shop)


def announcement(with_packer: bool, plugin_count: int, jobs: Sequence[pins.Pin]) -> str:
    """What is going to be built, and how long that takes."""
    parts = [*([f"packer {pins.PACKER.version}"] if with_packer else []), counted(plugin_count, "plugin")]
    minutes = counted(math.ceil(sum(job.build_s for job in jobs) / 60), "minute")
    return f"building {' and '.join(parts[: 1 + bool(plugin_count)])} from source: about {minutes} on 2 cores, once"


@dataclasses.dataclass(frozen=True)
class _Source:
    """A module that is ready to be built."""

    pin: pins.Pin
    folder: Path
    made: Path


class _Cancelled(Exception):
    """Another build failed, or somebody pressed Ctrl-C."""


def _source(shop: Workshop, pin: pins.Pin, place: Path) -> _Source:
    place.mkdir()
    with shop.console.task(f"downloading {pin.name} {pin.version}", None):
        module = _download(shop, pin, cwd=place)
    return _Source(pin, _writable_copy(module, place / "source"), place / "out" / pin.name)


def _compile_all(shop: Workshop, sources: Sequence[_Source]) -> list[Path]:
    spare = spare_memory_gb()
    if len(sources) == 1 or spare is None or spare < sum(source.pin.memory_gb for source in sources):
        return [_compile(shop, source) for source in sources]
    stop = threading.Event()

    def watch() -> None:
        if stop.is_set():
            raise _Cancelled

    # Signals arrive on this thread only, not on those that run the builds.
    with stop_signals(), concurrent.futures.ThreadPoolExecutor(len(sources)) as pool:
        running = [pool.submit(_compile, shop, source, watch) for source in sources]
        with _set_afterwards(stop):
            concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_EXCEPTION)
        # What failed of itself says why; what was ended for it does not.
        faults = [fault for fault in (job.exception() for job in running) if fault is not None]
        for fault in sorted(faults, key=lambda fault: isinstance(fault, _Cancelled)):
            raise fault
        return [job.result() for job in running]


@contextlib.contextmanager
def _set_afterwards(event: threading.Event) -> Iterator[None]:
    try:
        yield
    finally:
        event.set()


def _compile(shop: Workshop, source: _Source, watch: Callable[[], None] | None = None) -> Path:
    pin = source.pin
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    # Without it a plugin calls itself a development version, and version constraints refuse it.
    flags = () if pin is pins.PACKER else ("-ldflags", f"-X {pin.module}/version.VersionPrerelease=")
    argv: list[str | Path] = [shop.go, "build", "-v", "-buildvcs=false", *flags, "-o", source.made, "."]
    with shop.console.task(f"building {pin.name} {pin.version}", None) as advance:
        code = shop.stream(
            argv,
            environ=environment.go_environment(shop.environ),
            cwd=source.folder,
            timeout=_BUILD_TIMEOUT_S,
            on_line=_counting(last, advance),
            watch=watch,
        )
        if code != 0 or not source.made.is_file():
            # One that was killed says nothing itself; systems do that where memory runs out.
            raise ToolError(
                f"Go cannot build {pin.module} {pin.version}", details=[*last, f"go build ended with code {code}"]
            )
    return source.made


def _download(shop: Workshop, pin: pins.Pin, *, cwd: Path) -> Path:
    # The working directory is outside of any module, so that no go.mod takes part.
    argv: list[str | Path] = [shop.go, "mod", "download", "-json", f"{pin.module}@{pin.version}"]
    child_environ = environment.go_environment(shop.environ)
    done = shop.run(argv, environ=child_environ, cwd=cwd, timeout=_DOWNLOAD_TIMEOUT_S)
    reported = json.loads(done.stdout) if done.stdout.lstrip().startswith("{") else {}
    if done.returncode == 0 and "Dir" in reported:
        return Path(reported["Dir"])
    raise ToolError(
        f"Go cannot download {pin.module} {pin.version}",
        hint="check the network, GOPROXY and the proxy variables",
        details=(reported.get("Error") or done.stderr).strip().splitlines()[-_LAST_LINES:],
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
