"""Stands between imagegen and one program, and ends the program when imagegen is killed.

It is a process of its own, `python -I -S keeper.py`, and imports little, so that it starts fast. Its standard input is
the leash, a socket: imagegen sends a task and later orders, and the keeper answers with what became of the program.
A leash that closes while the program runs means that imagegen is gone. The keeper then interrupts the program, goes on
reading its output, so that it can clean up and the log tells how that went, and kills what is left in the end.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import sys
import termios
import time

LEASH = 0
INTERRUPT = b"I"
KILL = b"K"
_READ_SIZE = 65536
# A shell's `&` and nohup start programs that ignore some of these; python itself ignores SIGPIPE.
_RESTORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


class Grace:
    """How long an interrupted program may clean up: `least_s`, and then for as long as it says something.

    It has stopped saying something after `quiet_s` of silence. `last_s` is for a program that runs others: before it is
    killed it gets a second SIGINT, and so much time to end them.
    """

    def __init__(self, least_s: float = 0.0, quiet_s: float = 0.0, last_s: float = 0.0) -> None:
        self.least_s = least_s
        self.quiet_s = quiet_s
        self.last_s = last_s

    def ends(self, began: float, heard: float) -> float:
        """When the program is killed that was interrupted at `began` and last said something at `heard`."""
        return max(began + self.least_s, heard + self.quiet_s)


class Task:
    """What imagegen says at the start: the program, and how it ends when imagegen is killed."""

    def __init__(self, argv: list[bytes], environ: dict[bytes, bytes]) -> None:
        self.argv = argv
        self.environ = environ
        self.outputs: list[int] = []
        """The ends of the program's outputs that imagegen reads."""
        self.terminal: list[int] = []
        """Both ends of a terminal on which the program may ask: its own end is the last."""
        self.grace = Grace()
        self.log = b""
        """Where the output goes when imagegen no longer reads it; nowhere without a name."""
        self.secrets: list[str] = []

    def line(self) -> bytes:
        """The task as one line for `read_task`."""
        said = {
            "argv": [_text(word) for word in self.argv],
            "environ": {_text(name): _text(value) for name, value in self.environ.items()},
            "outputs": self.outputs,
            "terminal": self.terminal,
            "grace": [self.grace.least_s, self.grace.quiet_s, self.grace.last_s],
            "log": _text(self.log),
            "secrets": self.secrets,
        }
        return json.dumps(said).encode() + b"\n"


def read_task() -> Task:
    """The task from the leash."""
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(LEASH, _READ_SIZE)
        if not data:
            sys.exit()  # imagegen was killed before it had said anything
        line += data
    said = json.loads(line)
    environ = {_bytes(name): _bytes(value) for name, value in said["environ"].items()}
    task = Task([_bytes(word) for word in said["argv"]], environ)
    task.outputs, task.terminal, task.secrets = said["outputs"], said["terminal"], said["secrets"]
    task.grace, task.log = Grace(*said["grace"]), _bytes(said["log"])
    return task


class Keeper:
    """One running program."""

    def __init__(self, task: Task, pid: int, woken: int) -> None:
        self._task = task
        self._pid = pid
        self._woken = woken
        self._rests = dict.fromkeys(task.outputs, b"")
        self._interrupted = False
        self._alone_since = 0.0
        self._heard = 0.0
        self._second_at = 0.0
        self._killed = False

    def keep(self) -> int:
        """Obey until the program has ended, and answer with its exit code; nothing is left of its group then."""
        status = None
        while status is None:
            ready, _, _ = select.select(self._watched(), [], [], self._time_left())
            if self._woken in ready:
                os.read(self._woken, _READ_SIZE)
                pid, found = os.waitpid(self._pid, os.WNOHANG)
                status = found if pid else None
            if LEASH in ready:
                self._obey(_read(LEASH))
            for output in self._rests.keys() & ready:
                self._listen(output)
            if self._time_left() == 0:
                self._kill()
        self._signal(signal.SIGKILL)
        while self._alone_since and (ready := select.select([*self._rests], [], [], 0)[0]):
            for output in ready:
                self._listen(output)
        return os.waitstatus_to_exitcode(status)

    def _watched(self) -> list[int]:
        return [self._woken, *(self._rests if self._alone_since else [LEASH])]

    def _time_left(self) -> float | None:
        grace = self._task.grace
        if self._killed:
            return None
        if self._second_at:
            end = self._second_at + grace.last_s
        elif self._alone_since:
            end = grace.ends(self._alone_since, self._heard)
        else:
            return None
        return max(0.0, end - time.monotonic())

    def _obey(self, orders: bytes) -> None:
        if not orders:
            self._alone_since = self._heard = time.monotonic()
            self._interrupt()
        elif KILL in orders:
            # Told again while a program that runs others ends them: its time is not cut short.
            if not self._second_at:
                self._kill()
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        # Once: to a program that runs others, a second one means that nobody wants to wait.
        if not self._interrupted:
            self._interrupted = True
            self._signal(signal.SIGINT)

    def _kill(self) -> None:
        if self._task.grace.last_s and not self._second_at:
            self._second_at = time.monotonic()
            self._signal(signal.SIGINT)
        else:
            self._killed = True
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Nobody is left of the group: that is what is wanted. macOS answers EPERM where only zombies are left of it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _listen(self, output: int) -> None:
        data = os.read(output, _READ_SIZE)
        self._heard = time.monotonic()
        *lines, rest = (self._rests.pop(output) + data).split(b"\n")
        if data:
            self._rests[output] = rest
        elif rest:
            lines.append(rest)
        if lines and self._task.log:
            _write_log(self._task, [line.decode(errors="replace").removesuffix("\r") for line in lines])


def _write_log(task: Task, lines: list[str]) -> None:
    """Write lines to the log as imagegen would have; imported only now, when nobody waits for a start."""
    sys.path.append(os.path.abspath(f"{__file__}/../../.."))  # noqa: PTH100 - pathlib is slow to import
    from imagegen.build.log import BuildLog, log_texts

    # A program must be able to clean up where its log has no room left.
    with contextlib.suppress(OSError), BuildLog(task.log, append=True) as log:
        for line in lines:
            for text in log_texts(line, task.secrets):
                log.write(text)


def _start(task: Task) -> int:
    if task.terminal:
        # This process leads the session, so the terminal becomes the program's /dev/tty.
        fcntl.ioctl(task.terminal[-1], termios.TIOCSCTTY, 0)
    quiet = (os.POSIX_SPAWN_OPEN, LEASH, os.devnull, os.O_RDONLY, 0)
    pid = os.posix_spawn(task.argv[0], task.argv, task.environ, file_actions=[quiet], setpgroup=0, setsigdef=_RESTORED)
    if task.terminal:
        os.tcsetpgrp(task.terminal[-1], pid)
    return pid


def _hold(task: Task) -> None:
    """Keep what imagegen handed over to this process: the program must not inherit it."""
    for descriptor in (*task.outputs, *task.terminal):
        os.set_inheritable(descriptor, False)


def _woken_by_children() -> int:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return woken


def _let_go() -> None:
    """Give up the program's output, whose end imagegen would otherwise never see."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_SIZE)
    except ConnectionResetError:
        return b""  # imagegen was killed with an answer unread


def _tell(answer: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        os.write(LEASH, f"{answer}\n".encode())


def _text(data: bytes) -> str:
    # Names and values may be any bytes; Latin-1 has a character for each.
    return data.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")


def main() -> None:
    """Run one program to its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    task = read_task()
    _hold(task)
    woken = _woken_by_children()
    try:
        pid = _start(task)
    except OSError as fault:
        _tell(f"fault {fault.errno}")
        return
    _let_go()
    _tell(f"started {pid}")
    _tell(f"ended {Keeper(task, pid, woken).keep()}")


if __name__ == "__main__":
    main()
