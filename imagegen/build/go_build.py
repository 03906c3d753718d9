"""Builds Packer and its plugins from their Go modules at the pinned versions, where they cannot be downloaded.

Touches the cache folder only. Builds in a temporary folder and renames the result, so nothing in the cache is partial.
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from imagegen.build import environment, pins, plugins
from imagegen.build.process import ProgramRunner
from imagegen.build.spare_memory import spare_memory_gb
from imagegen.build.stopping import stop_signals
from imagegen.console import Console
from imagegen.errors import ToolError
from imagegen.files import replace_folder
from imagegen.lines import counted
from imagegen.waiting import as_finished

# Measured on two cores with an empty Go cache: 260 s for the slowest.
_BUILD_TIMEOUT_S: Final = 3600
_DOWNLOAD_TIMEOUT_S: Final = 900
_LAST_LINES: Final = 20
_PREFIX: Final = ".building-"


class Stream(Protocol):
    """`process.stream` as these builds call it. Several of them run at the same time."""

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
        """Run a program and handle its output line by line. An exception of `watch` ends it."""


@dataclasses.dataclass(frozen=True)
class BuildContext:
    """What a build from source needs."""

    go: Path
    cache: Path
    environ: Mapping[str, str]
    console: Console
    run: ProgramRunner
    stream: Stream


def built_packer(cache: Path) -> Path:
    """The path of the cache's Packer, which may not exist."""
    return cache / f"packer-{pins.PACKER.version}" / "packer"


def remove_abandoned(cache: Path) -> None:
    """Remove what killed builds left. The caller holds the lock of the cache, so no other build is running."""
    for folder in cache.glob(f"{_PREFIX}*"):
        shutil.rmtree(folder)


def build(context: BuildContext, packer: Path | None, missing: Sequence[pins.NeededPlugin]) -> None:
    """Build the missing plugins, and Packer if there is none. Replaces earlier builds."""
    jobs = [*([] if packer else [pins.PACKER]), *(plugin.pin for plugin in missing)]
    context.console.say(announcement(packer is None, len(missing), jobs))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=context.cache) as temporary:
        # Download on this thread, where an interrupt ends it.
        sources = [_download_source(context, pin, Path(temporary, pin.name)) for pin in jobs]
        binaries = dict(zip((pin.name for pin in jobs), _compile_all(context, sources), strict=True))
        if packer is None:
            packer = built_packer(context.cache)
            replace_folder(binaries[pins.PACKER.name].parent, packer.parent, Path(temporary, "old"))
        for plugin in missing:
            plugins.install_built(binaries[plugin.pin.name], plugin, packer=packer, context=context)


def announcement(with_packer: bool, plugin_count: int, jobs: Sequence[pins.Pin]) -> str:
    """The message that says what will be built, and how long that takes."""
    parts = [*([f"packer {pins.PACKER.version}"] if with_packer else []), counted(plugin_count, "plugin")]
    minutes = counted(math.ceil(sum(job.build_s for job in jobs) / 60), "minute")
    return f"building {' and '.join(parts[: 1 + bool(plugin_count)])} from source: about {minutes} on 2 cores, once"


@dataclasses.dataclass(frozen=True)
class _Source:
    """A Go module that is ready to build."""

    pin: pins.Pin
    folder: Path
    binary: Path


class _Cancelled(Exception):
    """Another build failed, or the user pressed Ctrl-C."""


def _download_source(context: BuildContext, pin: pins.Pin, place: Path) -> _Source:
    place.mkdir()
    with context.console.task(f"downloading {pin.name} {pin.version}", None):
        module = _download(context, pin, cwd=place)
    return _Source(pin, _writable_copy(module, place / "source"), place / "out" / pin.name)


def _compile_all(context: BuildContext, sources: Sequence[_Source]) -> list[Path]:
    spare = spare_memory_gb()
    if len(sources) == 1 or spare is None or spare < sum(source.pin.memory_gb for source in sources):
        return [_compile(context, source) for source in sources]
    stop = threading.Event()

    def watch() -> None:
        if stop.is_set():
            raise _Cancelled

    # Signals arrive on this thread only, not on the threads that run the builds.
    with stop_signals(), concurrent.futures.ThreadPoolExecutor(len(sources)) as pool:
        # A signal that comes while the builds are being started must end them too.
        with _set_afterwards(stop):
            running = [pool.submit(_compile, context, source, watch) for source in sources]
            for finished in as_finished(running):
                if finished.exception() is not None:
                    break
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


def _compile(context: BuildContext, source: _Source, watch: Callable[[], None] | None = None) -> Path:
    pin = source.pin
    last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
    # Without it a plugin reports a development version, which version constraints reject.
    flags = () if pin is pins.PACKER else ("-ldflags", f"-X {pin.module}/version.VersionPrerelease=")
    argv: list[str | Path] = [context.go, "build", "-v", "-buildvcs=false", *flags, "-o", source.binary, "."]
    with context.console.task(f"building {pin.name} {pin.version}", None) as advance:
        code = context.stream(
            argv,
            environ=environment.go_environment(context.environ),
            cwd=source.folder,
            timeout=_BUILD_TIMEOUT_S,
            on_line=_line_counter(last, advance),
            watch=watch,
        )
        if code != 0 or not source.binary.is_file():
            # A killed compiler prints nothing; systems kill it when memory runs out.
            raise ToolError(
                f"Go cannot build {pin.module} {pin.version}", details=[*last, f"go build ended with code {code}"]
            )
    return source.binary


def _download(context: BuildContext, pin: pins.Pin, *, cwd: Path) -> Path:
    # The working directory is outside any module, so that Go reads no go.mod.
    argv: list[str | Path] = [context.go, "mod", "download", "-json", f"{pin.module}@{pin.version}"]
    child_environ = environment.go_environment(context.environ)
    done = context.run(argv, environ=child_environ, cwd=cwd, timeout=_DOWNLOAD_TIMEOUT_S)
    report = json.loads(done.stdout) if done.stdout.lstrip().startswith("{") else {}
    if done.returncode == 0 and "Dir" in report:
        return Path(report["Dir"])
    raise ToolError(
        f"Go cannot download {pin.module} {pin.version}",
        hint="check the network, GOPROXY and HTTPS_PROXY",
        details=(report.get("Error") or done.stderr).strip().splitlines()[-_LAST_LINES:],
    )


def _writable_copy(module: Path, copy: Path) -> Path:
    # The module cache is read-only, and Go applies a module's `replace` lines only when it is the main module.
    shutil.copytree(module, copy, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(stat.S_IRWXU)
    return copy


def _line_counter(last: collections.deque[str], advance: Callable[[int], None]) -> Callable[[str], None]:
    def on_line(line: str) -> None:
        last.append(line)
        advance(1)

    return on_line
