"""The only module that starts processes: it takes an argv and an environment, and returns output and an exit code.

Each program has a supervisor (`supervisor.py`) as its parent, which survives when this process is killed. The program
leads its own process group, has exactly the given environment, an empty standard input and the default signal
handlers, has a deadline, and leaves no process behind.
"""

from __future__ import annotations

import codecs
import collections
import contextlib
import dataclasses
import errno
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from imagegen.base.errors import ToolError
from imagegen.base.signals import stop_signals
from imagegen.build import supervisor
from imagegen.build.supervisor import Grace, Orphan, Task

_READ_SIZE: Final = 65536
_WATCH_S: Final = 0.2
# For programs that have nothing to clean up.
SHORT_GRACE: Final = Grace(least_s=10)
_NOT_LOGGED: Final = Orphan()
# How long output is read after a program's end: a child process that left its group may hold it open.
_DRAIN_S: Final = 5.0
# -I and -S start Python without the user's settings and packages, so that it starts fast and finds only this package.
_SUPERVISOR: Final = (
    *(sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c"),
    f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); from {supervisor.__name__} import main; main()",
)


@dataclasses.dataclass(frozen=True)
class Completed:
    """The result of a process that has ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclasses.dataclass(frozen=True)
class Supervision:
    """How a long program is watched, and how it ends."""

    on_error_line: Callable[[str], None] | None = None
    """Gets the lines of its standard error. Without it they go where those of its standard output go."""
    watch: Callable[[], None] | None = None
    """Called repeatedly while the program runs. An exception ends the program."""
    grace: Grace = SHORT_GRACE
    """For its clean-up after an interrupt."""
    orphan: Orphan = _NOT_LOGGED
    """What happens to it when this process is killed."""


_UNWATCHED: Final = Supervision()


class ProgramRunner(Protocol):
    """The type of `run`, which a test may replace."""

    def __call__(
        self, argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        """Run a program to its end."""


class ProgramStreamer(Protocol):
    """The type of `stream`, which a test may replace. Several builds may call it at the same time."""

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str],
        cwd: Path | None,
        timeout: float,
        on_line: Callable[[str], None],
        supervision: Supervision = _UNWATCHED,
    ) -> int:
        """Run a program to its end, and handle its output line by line."""


def run(
    argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
) -> Completed:
    """Run a short program. If it does not end in time, kill it with all its children and raise TimeoutError."""
    with stop_signals(), _Child(_task(argv, environ), cwd) as child:
        try:
            stdout, stderr = child.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as overdue:
            raise TimeoutError(_timeout_message(argv, timeout)) from overdue
        code = child.wait()
    return Completed(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def stream(
    argv: Sequence[str | Path],
    *,
    environ: Mapping[str, str],
    cwd: Path | None,
    timeout: float,
    on_line: Callable[[str], None],
    supervision: Supervision = _UNWATCHED,
) -> int:
    """Run a long program and pass on each line of its output at once. An exception of `on_line` ends the program.

    Ctrl-C, SIGTERM, a closed terminal, the deadline (TimeoutError) and such an exception all end the program the same
    way: its group gets one SIGINT, lines are still passed on during its grace period, what remains is killed, and the
    exception is raised. A second Ctrl-C kills at once.
    """
    with stop_signals(), contextlib.ExitStack() as closing:
        with contextlib.ExitStack() as theirs:
            listeners = {}
            written = []
            for listener in (on_line, *([supervision.on_error_line] if supervision.on_error_line else [])):
                reading, writing = os.pipe()
                closing.callback(os.close, reading)
                theirs.callback(os.close, writing)
                listeners[reading] = listener
                written.append(writing)
            task = _task(argv, environ, supervision.orphan, listeners)
            child = closing.enter_context(_Child(task, cwd, (written[0], written[-1])))
        pump = Pump(listeners)
        closing.callback(pump.close)
        deadline = time.monotonic() + timeout
        try:
            pump.until_end(lambda: child.read_until(deadline), supervision.watch)
            if not child.has_ended(deadline):
                raise TimeoutError(_timeout_message(argv, timeout))
        except BaseException:
            child.send(supervisor.INTERRUPT)
            stopped = time.monotonic()
            pump.until_end(lambda: child.read_until(supervision.grace.deadline(stopped, pump.last_output_at)))
            raise
        finally:
            child.send(supervisor.KILL)
        return child.wait()


@dataclasses.dataclass(frozen=True)
class Programs:
    """How programs are run, which a test may replace."""

    run: ProgramRunner = run
    stream: ProgramStreamer = stream


class Pump:
    """Reads outputs, each on a thread, so that the caller's thread can wait with a deadline and be interrupted."""

    def __init__(
        self, outputs: Mapping[int, Callable[[str], None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._lines: collections.deque[tuple[Callable[[str], None], str]] = collections.deque()
        self._changed = threading.Condition()
        self._open = len(outputs)
        self._failed = False
        self._stopped, self._stop = os.pipe()
        self.last_output_at = clock()
        """When the process last printed something."""
        self._threads = [threading.Thread(target=self._read, args=item) for item in outputs.items()]
        for thread in self._threads:
            thread.start()

    def until_end(self, deadline: Callable[[], float], watch: Callable[[], None] | None = None) -> bool:
        """Pass on lines until the end of the output. Returns False if the deadline comes first."""
        while True:
            if watch is not None:
                watch()
            with self._changed:
                left = deadline() - self._clock()
                if left <= 0:
                    return False
                # The deadline may change meanwhile.
                if not self._changed.wait_for(lambda: self._lines or not self._open, timeout=min(left, _WATCH_S)):
                    continue
                if not self._lines:
                    return True
                on_line, line = self._lines.popleft()
            self._pass_on(on_line, line)

    def close(self) -> None:
        """Stop reading: a child process that left the program's group may hold the output open for ever."""
        os.write(self._stop, b"-")
        for thread in self._threads:
            thread.join()
        os.close(self._stopped)
        os.close(self._stop)

    def _pass_on(self, on_line: Callable[[str], None], line: str) -> None:
        if self._failed:
            return
        try:
            on_line(line)
        except Exception:
            # Raised only once, which ends the program. Raised again, it would cut the program's clean-up short.
            self._failed = True
            raise

    def _read(self, output: int, on_line: Callable[[str], None]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        data = b"-"
        while data:
            ready, _, _ = select.select([output, self._stopped], [], [])
            data = os.read(output, _READ_SIZE) if output in ready else b""
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            if not data and rest:
                lines.append(rest)
            with self._changed:
                self.last_output_at = self._clock()
                self._lines.extend((on_line, line.removesuffix("\r")) for line in lines)
                self._open -= not data
                self._changed.notify()


class _Child(contextlib.AbstractContextManager["_Child"]):
    """A program and its supervisor. The program has ended when this context ends."""

    def __init__(
        self, task: Task, cwd: Path | None, written: tuple[int, int] = (subprocess.PIPE, subprocess.PIPE)
    ) -> None:
        self._control, theirs = socket.socketpair()
        self._answers = self._control.makefile("rb")
        self._code = -int(signal.SIGKILL)
        self._ended_at = math.inf
        with contextlib.ExitStack() as unwinding, theirs:
            unwinding.callback(self._close_control)
            try:
                self.process = subprocess.Popen(  # noqa: S603 - no shell; a program of this package
                    _SUPERVISOR,
                    stdin=theirs.fileno(),
                    stdout=written[0],
                    stderr=written[1],
                    cwd=cwd,
                    pass_fds=task.outputs,
                    # A session of its own: the terminal's Ctrl-C reaches this process only, which passes it on once.
                    start_new_session=True,
                )
                unwinding.callback(self._close)
                theirs.close()
                self._control.sendall(json.dumps(dataclasses.asdict(task)).encode() + b"\n")
                group = self._started()
            except OSError as fault:
                where = f" in {cwd}" if cwd is not None else ""
                raise ToolError(f"{task.argv[0]} cannot be started{where}: {fault.strerror}") from fault
            self._reaper = threading.Thread(target=self._reap, args=(group,))
            self._reaper.start()
            self._closing = unwinding.pop_all()

    def __exit__(self, *_: object) -> None:
        self.send(supervisor.KILL)
        self._reaper.join()
        self._closing.close()

    def send(self, command: bytes) -> None:
        """Tell the supervisor to interrupt or to kill the program, unless it has ended."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(command)

    def wait(self) -> int:
        """The program's exit code, when it has ended."""
        self._reaper.join()
        return self._code

    def read_until(self, deadline: float) -> float:
        """When to stop reading the output: at the deadline, or shortly after the program's end."""
        return min(deadline, self._ended_at + _DRAIN_S)

    def has_ended(self, deadline: float) -> bool:
        """Wait for the program's end until the deadline; whether it has ended."""
        self._reaper.join(max(0.0, deadline - time.monotonic()))
        return not self._reaper.is_alive()

    def _close_control(self) -> None:
        # A supervisor that still runs ends its program when this socket closes, which needs both.
        self._answers.close()
        self._control.close()

    def _close(self) -> None:
        self._close_control()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _started(self) -> int:
        answer, _, number = self._answer().partition(" ")
        if answer != "started":
            fault = int(number or errno.ECHILD)
            raise OSError(fault, os.strerror(fault))
        return int(number)

    def _answer(self) -> str:
        with contextlib.suppress(ConnectionResetError):
            return self._answers.readline().decode().rstrip("\n")
        return ""

    def _reap(self, group: int) -> None:
        answer = self._answer()
        if answer:
            self._code = int(answer.removeprefix("ended "))
        else:
            # The supervisor was killed: kill its program too.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
        self._ended_at = time.monotonic()


def _task(
    argv: Sequence[str | Path],
    environ: Mapping[str, str],
    orphan: Orphan = _NOT_LOGGED,
    outputs: Iterable[int] = (),
) -> Task:
    return Task(
        argv=[_text(part) for part in argv],
        environ={_text(name): _text(value) for name, value in environ.items()},
        outputs=list(outputs),
        orphan=dataclasses.replace(orphan, log=_text(orphan.log)),
    )


def _text(value: str | Path) -> str:
    # The supervisor runs in UTF-8 mode, whatever this process's encoding is.
    return os.fsencode(value).decode(errors="surrogateescape")


def _timeout_message(argv: Sequence[str | Path], timeout: float) -> str:
    return f"{' '.join(str(part) for part in argv[:3])} did not end within {timeout:g} s"


# What any program needs to find its files and the network.
_COMMON: Final = frozenset(
    {
        "HOME",
        "PATH",
        "USER",
        "LOGNAME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "SHELL",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
    }
)
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
# The variables of Go's documentation, and those of git and C compilers, for modules that come from no proxy.
_GO_PREFIXES: Final = ("GO", "CGO_", "GIT_")
_GO: Final = frozenset({"CC", "CXX", "AR", "PKG_CONFIG", "SSH_AUTH_SOCK", "NETRC"})
_SECRET_ENDINGS: Final = ("SECRET", "SECRET_ACCESS_KEY", "PASSWORD", "TOKEN", "SESSION_TOKEN", "ACCESSTOKEN")
_SHORTEST_SECRET: Final = 8


def packer_probe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For commands that inspect the user's Packer, with the user's Packer settings."""
    settings = {n: environ[n] for n in ("PACKER_PLUGIN_PATH", "PACKER_CONFIG_DIR", "PACKER_CONFIG") if n in environ}
    return {**_choose(environ, frozenset(), ()), **settings, "CHECKPOINT_DISABLE": "1"}


def go_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For `go`. A workspace file above the cache must not redirect the build."""
    return {**_choose(environ, _GO, _GO_PREFIXES), "GOWORK": "off"}


def pip_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For `pip install --target`, with the user's package indexes. Without a network it gives up soon."""
    patience = {"PIP_RETRIES": "1", "PIP_DEFAULT_TIMEOUT": "10"}
    # Settings of the user that would contradict --target.
    ours = {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**patience, **_choose(environ, frozenset({"NETRC"}), ("PIP_",)), **ours}


def build_environment(
    environ: Mapping[str, str],
    tools: Mapping[str, str],
    variables: Mapping[str, str],
    names: frozenset[str],
) -> dict[str, str]:
    """For `packer build` and `packer validate`: of the user's PKR_VAR_* and PACKER_* variables only those in `names`.

    So the user's settings cannot change a build. `names` are mostly the variables of the cloud's credentials. A name
    that ends with `*` is a prefix.
    """
    chosen = _choose(environ, names, tuple(name.removesuffix("*") for name in names if name.endswith("*")))
    return {**chosen, **tools, **{f"PKR_VAR_{name}": value for name, value in variables.items()}}


def secret_values(
    environ: Mapping[str, str], secrets: frozenset[str] = frozenset(), texts: Iterable[str] = ()
) -> tuple[str, ...]:
    """Values that no output may hold. The longest come first, so that a value that contains another is hidden whole."""
    named = (value for name, value in environ.items() if name in secrets or name.upper().endswith(_SECRET_ENDINGS))
    values = {value for value in (*named, *texts) if len(value) >= _SHORTEST_SECRET}
    return tuple(sorted(values, key=lambda value: (-len(value), value)))


def _choose(environ: Mapping[str, str], names: frozenset[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name in _COMMON or name.upper() in _PROXIES or name in names or (prefixes and name.startswith(prefixes))
    }
