"""Prints messages, warnings and progress on standard error. Data goes to standard output."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

import rich.console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from imagegen.base.lines import one_line


def make_console(*, plain: bool | None = None, quiet: bool = False) -> Console:
    """The console of a run. Without `plain` it is plain unless standard error is a terminal."""
    return Console(sys.stderr, plain=not sys.stderr.isatty() if plain is None else plain, quiet=quiet)


def seconds(value: float) -> str:
    """A duration as text: `0.4s`, `42s`, `3m07s`, `1h02m`."""
    if value < 9.95:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m"


class Console:
    """Prints messages. Several threads may use it, and text is never read as markup.

    Plain lines begin with the time in UTC, as in packer.log: readers of a CI log need it.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        plain: bool,
        quiet: bool = False,
        width: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.plain = plain
        self.quiet = quiet
        self._stream = stream
        self._width = width
        self._now = now
        self._terminal: rich.console.Console | None = None
        self._progress: Progress | None = None
        self._lock = threading.RLock()

    @property
    def terminal(self) -> rich.console.Console:
        """The terminal, for displays that draw on it."""
        with self._lock:
            if self._terminal is None:
                self._terminal = rich.console.Console(file=self._stream, width=self._width, highlight=False)
            return self._terminal

    def say(self, text: str) -> None:
        """Print a message, unless the console is quiet."""
        if not self.quiet:
            self._line(text, style=None)

    def warn(self, text: str) -> None:
        """Print a warning, even if the console is quiet."""
        self._line(f"warning: {text}", style="yellow")

    def tell(self, text: str) -> None:
        """Print a message even if the console is quiet: how a command ended, or what the user must read before it."""
        self._line(text, style=None)

    def relay(self, line: str) -> None:
        """Print a line of a child process as it is: its own console has added the time and obeyed --quiet."""
        self._write(line, style=None)

    @contextlib.contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """Show a task that takes time: a bar up to `total`, or a spinner. Yields a function that adds to its count."""
        if self.quiet or self.plain:
            began = time.monotonic()
            self.say(f"{label} ...")
            yield lambda _count: None
            self.say(f"{label}: done in {seconds(time.monotonic() - began)}")
            return
        # Tasks that run at the same time share one drawing, because two would overwrite each other.
        with self._lock:
            progress = self._progress = self._progress or self._started_progress()
            task = progress.add_task(one_line(label), total=total)
        try:
            yield lambda count: progress.advance(task, count)
        finally:
            with self._lock:
                progress.remove_task(task)
                if not progress.tasks:
                    progress.stop()
                    self._progress = None

    def _started_progress(self) -> Progress:
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=self.terminal,
            transient=True,
            expand=True,
        )
        progress.start()
        return progress

    def _line(self, text: str, *, style: str | None) -> None:
        stamp = time.strftime("%H:%M:%SZ ", time.gmtime(self._now())) if self.plain else ""
        self._write(f"{stamp}{text}", style=style)

    def _write(self, text: str, *, style: str | None) -> None:
        line = one_line(text)
        if self.plain:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        else:
            self.terminal.print(line, style=style, markup=False, emoji=False, soft_wrap=True)
