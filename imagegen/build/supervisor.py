"""Supervises one program for imagegen, and ends the program when imagegen is killed.

A separate process, which imports little, so that it starts fast. Its standard input is a control socket: imagegen
sends a task and later commands, and the supervisor reports the start and the exit code.
If the socket closes while the program runs, imagegen was killed. Then the supervisor interrupts the program and reads
its output while it cleans up, so that the log is complete, and finally kills what is left.
"""

import contextlib
import dataclasses
import json
import os
import select
import signal
import sys
import time

from imagegen.build.output import BuildLog, log_texts

CONTROL = 0
INTERRUPT = b"I"
KILL = b"K"
_READ_SIZE = 65536
# A shell's `&` and nohup start programs that ignore some of these; python itself ignores SIGPIPE.
_RESTORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE)


@dataclasses.dataclass(frozen=True)
class Grace:
    """How long an interrupted program may clean up: at least `least_s`, and then until it prints nothing for `quiet_s`.

    `last_s` is for a program that runs others: before it is killed, it gets a second SIGINT and this much time to end
    them.
    """

    least_s: float = 0.0
    quiet_s: float = 0.0
    last_s: float = 0.0

    def deadline(self, began: float, last_output: float) -> float:
        """When to kill a program that was interrupted at `began` and printed its last line at `last_output`."""
        return max(began + self.least_s, last_output + self.quiet_s)


@dataclasses.dataclass(frozen=True)
class Orphan:
    """What happens to a program when imagegen is killed: it is interrupted, may clean up, and its output is logged."""

    grace: Grace = Grace()
    log: str = ""
    """The absolute path of the log; empty for none."""
    secrets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Task:
    """What imagegen sends at the start, as JSON. Undecodable bytes in strings are surrogates, as Python has them."""

    argv: list[str]
    environ: dict[str, str]
    outputs: list[int]
    """The read ends of the program's output pipes."""
    orphan: Orphan


def read_task() -> Task:
    """Read the task from the control socket."""
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit()  # imagegen was killed before it sent a task
    fields = json.loads(line)
    orphan = fields.pop("orphan")
    return Task(**fields, orphan=Orphan(Grace(**orphan["grace"]), orphan["log"], tuple(orphan["secrets"])))


class Supervisor:
    """Supervises one running program."""

    def __init__(self, task: Task, pid: int, wakeup: int) -> None:
        self._task = task
        self._pid = pid
        self._wakeup = wakeup
        self._incomplete = dict.fromkeys(task.outputs, b"")
        self._interrupted = False
        self._orphaned_at = 0.0
        self._last_output = 0.0
        self._second_interrupt_at = 0.0
        self._killed = False

    def wait(self) -> int:
        """Handle commands until the program ends, kill the rest of its process group, and return its exit code."""
        status = None
        while status is None:
            watched = self._incomplete if self._orphaned_at else [CONTROL]
            ready, _, _ = select.select([self._wakeup, *watched], [], [], self._time_left())
            if self._wakeup in ready:
                os.read(self._wakeup, _READ_SIZE)
                pid, found = os.waitpid(self._pid, os.WNOHANG)
                status = found if pid else None
            if CONTROL in ready:
                self._handle(_read(CONTROL))
            for output in self._incomplete.keys() & ready:
                self._read_output(output)
            if self._time_left() == 0:
                self._kill()
        self._signal(signal.SIGKILL)
        while self._orphaned_at and (ready := select.select([*self._incomplete], [], [], 0)[0]):
            for output in ready:
                self._read_output(output)
        return os.waitstatus_to_exitcode(status)

    def _time_left(self) -> float | None:
        grace = self._task.orphan.grace
        if self._killed:
            return None
        if self._second_interrupt_at:
            end = self._second_interrupt_at + grace.last_s
        elif self._orphaned_at:
            end = grace.deadline(self._orphaned_at, self._last_output)
        else:
            return None
        return max(0.0, end - time.monotonic())

    def _handle(self, commands: bytes) -> None:
        if not commands:
            self._orphaned_at = self._last_output = time.monotonic()
            self._interrupt()
        elif KILL in commands:
            # After the second SIGINT the program ends its children: another command does not shorten that time.
            if not self._second_interrupt_at:
                self._kill()
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        # Only once: a program that runs others stops waiting for them at the second SIGINT.
        if not self._interrupted:
            self._interrupted = True
            self._signal(signal.SIGINT)

    def _kill(self) -> None:
        if self._task.orphan.grace.last_s and not self._second_interrupt_at:
            self._second_interrupt_at = time.monotonic()
            self._signal(signal.SIGINT)
        else:
            self._killed = True
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # The group may be gone already. macOS answers EPERM where only zombies are left of it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _read_output(self, output: int) -> None:
        data = os.read(output, _READ_SIZE)
        self._last_output = time.monotonic()
        *lines, rest = (self._incomplete.pop(output) + data).split(b"\n")
        if data:
            self._incomplete[output] = rest
        elif rest:
            lines.append(rest)
        orphan = self._task.orphan
        if lines and orphan.log:
            # Written as imagegen would. A full disk must not stop the program's clean-up.
            with contextlib.suppress(OSError), BuildLog(orphan.log, append=True) as log:
                for line in lines:
                    for text in log_texts(line.decode(errors="replace").removesuffix("\r"), orphan.secrets):
                        log.write(text)


def _start(task: Task) -> int:
    quiet = (os.POSIX_SPAWN_OPEN, CONTROL, os.devnull, os.O_RDONLY, 0)
    return os.posix_spawn(task.argv[0], task.argv, task.environ, file_actions=[quiet], setpgroup=0, setsigdef=_RESTORED)


def _wake_on_child_exit() -> int:
    wakeup, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wakeup


def _close_outputs() -> None:
    """Close this process's copies of the program's outputs: otherwise imagegen would never see their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _READ_SIZE)
    except ConnectionResetError:
        return b""  # imagegen was killed before it read an answer


def _send(answer: str) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        os.write(CONTROL, f"{answer}\n".encode())


def main() -> None:
    """Run one program to its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    task = read_task()
    # The program must not inherit the descriptors that imagegen passed to this process.
    for descriptor in task.outputs:
        os.set_inheritable(descriptor, False)
    wakeup = _wake_on_child_exit()
    try:
        pid = _start(task)
    except OSError as fault:
        _send(f"fault {fault.errno}")
        return
    _close_outputs()
    _send(f"started {pid}")
    _send(f"ended {Supervisor(task, pid, wakeup).wait()}")
