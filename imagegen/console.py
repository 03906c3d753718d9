"""What people read while imagegen works: lines, warnings and progress on standard error. Data is never among it."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TYPE_CHECKING, TextIO

import rich.console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from imagegen.lines import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Now = Callable[[], float]


def make_console(*, plain: bool | None = None, quiet: bool = False) -> Console:
    """The console of a run; `plain` None asks whether standard error is a terminal."""
    is_plain = not sys.stderr.isatty() if plain is None else plain
    return Console(sys.stderr, plain=is_plain, quiet=quiet)


def seconds(value: float) -> str:
    """A duration as people read it: `0.4s`, `42s`, `3m07s`, `1h02m`."""
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
    """Narration. Usable from several threads; text is never read as markup.

    Plain lines begin with the time of day, in UTC as packer.log has it: whoever reads a CI log asks when.
    """

    def __init__(
        self, stream: TextIO, *, plain: bool, quiet: bool = False, width: int | None = None, now: Now = time.time
    ) -> None:
        self.plain = plain
        self.quiet = quiet
        self._stream = stream
        self._width = width
        self._now = now
        self._rich: rich.console.Console | None = None
        self._progress: Progress | None = None
        self._tasks = 0
        self._lock = threading.RLock()

    @property
    def terminal(self) -> rich.console.Console:
        """The terminal, for displays that draw on it."""
        with self._lock:
            if self._rich is None:
                self._rich = rich.console.Console(file=self._stream, width=self._width, highlight=False)
            return self._rich

    def say(self, text: str) -> None:
        """Tell something; silent when quiet."""
        if not self.quiet:
            self._line(text, style=None)

    def warn(self, text: str) -> None:
        """Tell something that should be read even when quiet."""
        self._line(f"warning: {text}", style="yellow")

    def tell(self, text: str) -> None:
        """Tell how a command ended, or what should be read before it begins, even when quiet."""
        self._line(text, style=None)

    def relay(self, line: str) -> None:
        """Pass on a line of a child that has a console of its own: it decided already what to say and when it was."""
        self._write(line, style=None)

    @contextlib.contextmanager
    def task(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        """A piece of work that takes time: a bar towards `total`, or a spinner. Yields what counts it onwards."""
        if self.quiet:
            yield _uncounted
        elif self.plain:
            with self._plain_task(label):
                yield _uncounted
        else:
            with self._drawn_task(label, total) as advance:
                yield advance

    @contextlib.contextmanager
    def _plain_task(self, label: str) -> Iterator[None]:
        began = time.monotonic()
        self.say(f"{label} ...")
        yield
        self.say(f"{label}: done in {seconds(time.monotonic() - began)}")

    @contextlib.contextmanager
    def _drawn_task(self, label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        progress = self._join_progress()
        task = progress.add_task(one_line(label), total=total)
        try:
            yield lambda count: progress.advance(task, count)
        finally:
            progress.remove_task(task)
            self._leave_progress()

    def _join_progress(self) -> Progress:
        # Tasks that run at the same time share one drawing: two would overwrite each other.
        with self._lock:
            if self._progress is None:
                self._progress = self._new_progress()
                self._progress.start()
            self._tasks += 1
            return self._progress

    def _leave_progress(self) -> None:
        with self._lock:
            self._tasks -= 1
            if self._tasks == 0 and self._progress is not None:
                self._progress.stop()
                self._progress = None

    def _new_progress(self) -> Progress:
        return Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            console=self.terminal,
            transient=True,
            expand=True,
        )

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


def _uncounted(_count: int) -> None:
    """Progress that nobody sees."""
