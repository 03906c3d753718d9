"""Runs jobs several at once, and waits for all of them: one run shows every error."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from imagegen.errors import ImagegenError, VerificationError
from imagegen.signals import as_finished

if TYPE_CHECKING:
    from imagegen.console import Console

PARALLEL: Final = 4

_JobT = TypeVar("_JobT")
_ResultT = TypeVar("_ResultT")


def run_all(
    run: Callable[[_JobT], _ResultT], jobs: Sequence[_JobT], label: str, console: Console, stop: threading.Event
) -> list[_ResultT]:
    """The result of each job, in their order. `stop` is set if the user ends the run."""
    if not jobs:
        return []
    with (
        concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool,
        console.task(label, len(jobs)) as advance,
    ):
        try:
            running = [pool.submit(run, job) for job in jobs]
            for _ in as_finished(running):
                advance(1)
        except BaseException:
            # Without this, an interrupt would wait for every download.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return _gather(running)


def _gather(finished: Sequence[concurrent.futures.Future[_ResultT]]) -> list[_ResultT]:
    errors = [error for error in (future.exception() for future in finished) if isinstance(error, ImagegenError)]
    if not errors:
        return [future.result() for future in finished]
    # Wrong bytes are the most serious error: an unreachable server must not hide their exit code.
    first = min(errors, key=lambda error: not isinstance(error, VerificationError))
    if len(errors) == 1:
        raise first
    details = [line for error in errors for line in (error.message, *error.details, f"  hint: {error.hint}")]
    raise type(first)(
        f"{len(errors)} of {len(finished)} files failed", details=details, hint="finished copies are kept: run it again"
    ) from first
