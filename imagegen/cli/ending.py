"""How the command ends when its output has no place to go: a full disk, a file size limit, a reader that left."""

from __future__ import annotations

import errno
import os
import sys
from typing import Final, TextIO

import click

from imagegen.errors import ExitCode
from imagegen.lines import one_line

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# As a shell reports a program that SIGPIPE ended.
READER_LEFT: Final = 141


def end_without_place(error: OSError) -> int | None:
    """The exit code, after the message; None where the error is none of a place, but a bug."""
    if error.errno in _FULL:
        _drop(sys.stdout)
        place = error.filename or "standard output, or a file being written"
        _tell(f"error: {place}: {error.strerror}")
        _tell("hint: free some space there and in the folder for temporary files (TMPDIR), or raise `ulimit -f`")
        return int(ExitCode.USAGE)
    if error.filename is None:
        return None
    _tell(f"error: {error.filename}: {error.strerror}")
    return int(ExitCode.USAGE)


class Verbs(click.Group):
    """A group of verbs, quiet when the reader of their output leaves: click would end with 1, the code of a bug."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _drop(sys.stdout)
            raise click.exceptions.Exit(READER_LEFT) from None


def _drop(stream: TextIO) -> None:
    # What is still buffered would fail again when the interpreter ends, with a message and a code of its own.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _tell(text: str) -> None:
    try:
        click.echo(one_line(text), err=True)
    except OSError:
        # Standard error lies on the same full disk: the exit code alone tells it.
        _drop(sys.stderr)
