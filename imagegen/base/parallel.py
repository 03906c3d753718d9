"""Runs jobs several at once, and waits for all of them: one run shows every error."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from imagegen.base.errors import ImagegenError, VerificationError
from imagegen.base.signals import as_finished

if TYPE_CHECKING:
    from imagegen.base.console import Console

PARALLEL = 4

_JobT = TypeVar("_JobT")
_ResultT = TypeVar("_ResultT")


def run_all(
    run: Callable[[_JobT], _ResultT], jobs: Sequence[_JobT], label: str, console: Console, stop: threading.Event
) -> list[concurrent.futures.Future[_ResultT]]:
    """Run each job, and return them finished, in their order. `stop` is set if the user ends the run."""
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
    return running


def errors_in(finished: Sequence[concurrent.futures.Future[_ResultT]]) -> list[ImagegenError]:
    """The errors of the jobs. One that is no ImagegenError is a fault of imagegen: it is raised, not listed."""
    errors: list[ImagegenError] = []
    for error in (future.exception() for future in finished):
        if isinstance(error, ImagegenError):
            errors.append(error)
        elif error is not None:
            raise error
    return errors


def results_of(finished: Sequence[concurrent.futures.Future[_ResultT]], noun: str, hint: str = "") -> list[_ResultT]:
    """The results of all jobs, or one error with all that is wrong. `noun` is what several jobs are about."""
    errors = errors_in(finished)
    if not errors:
        return [future.result() for future in finished]
    # Wrong bytes are the most serious error: an unreachable server must not hide their exit code.
    first = min(errors, key=lambda error: not isinstance(error, VerificationError))
    if len(errors) == 1:
        raise first
    details = [
        line
        for error in errors
        for line in (error.message, *error.details, *([f"  hint: {error.hint}"] if error.hint else []))
    ]
    kind = VerificationError if isinstance(first, VerificationError) else type(first)
    raise kind(f"{len(errors)} of {len(finished)} {noun} failed", details=details, hint=hint) from first
