"""How the command ends when its output has no place to go: a full disk, a file size limit, a reader that left."""

import errno
import os
import sys
import tempfile
from pathlib import Path
from typing import Final, TextIO

import click

from imagegen.errors import ExitCode
from imagegen.lines import one_line

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# As a shell reports a program that SIGPIPE ended.
READER_LEFT: Final = 141


def open_closed_streams() -> None:
    """A standard stream that was closed becomes the null device: Python has none for it, which nobody expects.

    In this order each gets the number that was free, which no file or socket then takes by accident.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until the end


def end_without_place(error: OSError) -> int | None:
    """The exit code, after the message; None where the error is none of a place, but a bug."""
    if error.errno in _FULL:
        drop_output()
        place = error.filename or "standard output, or a file being written"
        _tell(f"error: {place}: {error.strerror}")
        _tell("hint: free some space there and in the folder for temporary files (TMPDIR), or raise `ulimit -f`")
        return int(ExitCode.USAGE)
    if error.filename is None:
        if not (isinstance(error, FileNotFoundError) and _has_no_temporary_folder()):
            return None
        _tell("error: no folder for temporary files can be written to, neither TMPDIR nor /tmp nor this folder")
        _tell("hint: free some space in one of them, set TMPDIR to another folder, or raise `ulimit -f`")
        return int(ExitCode.USAGE)
    _tell(f"error: {error.filename}: {error.strerror}")
    return int(ExitCode.USAGE)


def _has_no_temporary_folder() -> bool:
    # Whoever asks Python for it gets an error that names no file.
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return True
    return False


def drop_output() -> None:
    """Forget what standard output could not take."""
    _drop(sys.stdout)


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
