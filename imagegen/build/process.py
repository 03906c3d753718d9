"""The only place that starts processes: an argv and an environment come in, output and an exit code go out.

Every child leads its own process group, sees exactly the environment it is given and nothing on its standard input,
has a deadline, and leaves nothing running behind.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from typing import IO, TYPE_CHECKING, NoReturn, Protocol

from imagegen.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

# How long an interrupted child may clean up: Packer deletes machines, networks and key pairs in a cloud meanwhile.
GRACE_S = 120.0
_READ_SIZE = 65536
_WATCH_S = 0.2


@dataclasses.dataclass(frozen=True)
class Completed:
    """A child that has ended."""

    returncode: int
    stdout: str
    stderr: str


class Run(Protocol):
    """What `run` looks like to those who let a test put another in its place."""

    def __call__(
        self, argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        """Run a program to its end."""


class Stream(Protocol):
    """What `stream` looks like to those who let a test put another in its place."""

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str],
        cwd: Path | None,
        timeout: float,
        on_line: Callable[[str], None],
    ) -> int:
        """Run a program to its end, line by line."""


def run(
    argv: Sequence[str | Path],
    *,
    environ: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float,
    input: str | None = None,
) -> Completed:
    """Run a short program. TimeoutError when it does not end in time; it is then killed with all its children."""
    with _terminations_as_interrupts():
        child = _start(argv, environ, cwd, stdin=subprocess.DEVNULL if input is None else subprocess.PIPE)
        try:
            stdout, stderr = child.communicate(None if input is None else input.encode(), timeout=timeout)
        except subprocess.TimeoutExpired as overdue:
            raise TimeoutError(_overdue(argv, timeout)) from overdue
        finally:
            _kill_group(child)
            child.wait()
            _close_pipes(child)
    return Completed(child.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def stream(
    argv: Sequence[str | Path],
    *,
    environ: Mapping[str, str],
    cwd: Path | None,
    timeout: float,
    on_line: Callable[[str], None],
    watch: Callable[[], None] | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """Run a long program and hand on each line of its output, standard error included, as it comes.

    `watch` is called again and again while the program runs; like a failing `on_line` it ends the run by raising.

    Ctrl-C, SIGTERM, a lost terminal, the deadline (TimeoutError) and an exception of `on_line` all end the same way:
    the group gets one SIGINT, lines are still handed on while it cleans up, whatever then remains is killed, and the
    exception is raised. A second Ctrl-C kills at once.
    """
    with _terminations_as_interrupts():
        child = _start(argv, environ, cwd, stdin=subprocess.DEVNULL, merged=True)
        pump = _Pump(child, on_line)
        try:
            if not pump.until_end(timeout, watch):
                raise TimeoutError(_overdue(argv, timeout))
        except BaseException:
            _signal_group(child, signal.SIGINT)
            pump.until_end(grace_s)
            raise
        finally:
            pump.close()
    return child.returncode


class _Pump:
    """Reads a child's output on a thread, so that the caller's thread can wait with a deadline and be interrupted."""

    def __init__(self, child: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> None:
        self._child = child
        self._on_line = on_line
        self._lines: collections.deque[str] = collections.deque()
        self._changed = threading.Condition()
        self._ended = False
        self._threads = (threading.Thread(target=self._read), threading.Thread(target=self._reap))
        for thread in self._threads:
            thread.start()

    def until_end(self, seconds: float, watch: Callable[[], None] | None = None) -> bool:
        """Hand on lines until the child has ended and said everything; false when that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            if watch is not None:
                watch()
            with self._changed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                pause = left if watch is None else min(left, _WATCH_S)
                if not self._changed.wait_for(lambda: self._lines or self._ended, timeout=pause):
                    continue
                if not self._lines:
                    return True
                line = self._lines.popleft()
            self._hand_on(line)

    def _hand_on(self, line: str) -> None:
        try:
            self._on_line(line)
        except Exception:
            # Raised once, it ends the run; raised again for each later line, it would cut the child's clean-up short.
            self._on_line = _ignore
            raise

    def close(self) -> None:
        if self._child.returncode is None:
            _kill_group(self._child)
        for thread in self._threads:
            thread.join()
        _close_pipes(self._child)

    def _read(self) -> None:
        stdout = _pipe(self._child.stdout)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        while True:
            data = os.read(stdout.fileno(), _READ_SIZE)
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            with self._changed:
                self._lines.extend(line.removesuffix("\r") for line in lines)
                if not data:
                    self._lines.extend([rest] if rest else [])
                    self._ended = True
                self._changed.notify()
            if not data:
                return

    def _reap(self) -> None:
        # A grandchild that outlives its parent would keep the pipe open, and the reader would wait for it for ever.
        self._child.wait()
        _kill_group(self._child)


def _start(
    argv: Sequence[str | Path], environ: Mapping[str, str], cwd: Path | None, *, stdin: int, merged: bool = False
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - no shell; argv comes from this package and from the toolchain it found
            [str(part) for part in argv],
            env=dict(environ),
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            # A session of its own: the terminal's Ctrl-C reaches this process only, which passes it on exactly once.
            start_new_session=True,
        )
    except OSError as fault:
        where = f" in {cwd}" if cwd is not None else ""
        raise ToolError(f"{argv[0]} cannot be started{where}: {fault.strerror}") from fault


def _signal_group(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    # The group's id is the leader's; nobody of the group being left is what is wanted.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    # macOS answers EPERM, not ESRCH, where only zombies are left of a group.
    with contextlib.suppress(PermissionError):
        _signal_group(child, signal.SIGKILL)


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise AssertionError("the child was started without the pipe that is read")
    return pipe


def _overdue(argv: Sequence[str | Path], timeout: float) -> str:
    return f"{' '.join(str(part) for part in argv[:2])} did not end within {timeout:g} s"


@contextlib.contextmanager
def _terminations_as_interrupts() -> Iterator[None]:
    """While a child runs, SIGTERM and a lost terminal are a Ctrl-C: a default death would orphan the child."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers, and only there do signals arrive
        return
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _ignore(_line: str) -> None:
    """A listener that has already failed is asked no more."""


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
