"""The tree of errors. Each has a message, a hint, details and an exit code.

    ImagegenError
    +-- ConfigError          2  the config or the command line is invalid
    +-- ToolError            3  a tool is missing or too old
    +-- VerificationError    4  downloaded bytes, or a manifest and its documents, are not what they must be
    +-- RefusedError         5  the request is valid, but imagegen refuses it
    +-- BuildError           6  the build failed
    +-- PublishError         7  publishing is incomplete and can be resumed
    +-- ConflictError        8  a stored manifest contradicts this one

Library code raises; only `imagegen.cli.main` catches and exits.
"""

import dataclasses
import enum
from collections.abc import Iterable
from typing import Final

from imagegen.base.lines import joined, one_line


class ExitCode(enum.IntEnum):
    """The documented exit codes (docs/operator-guide.md)."""

    OK = 0
    BUG = 1
    USAGE = 2
    TOOL = 3
    VERIFICATION = 4
    REFUSED = 5
    BUILD = 6
    PUBLISH = 7
    CONFLICT = 8
    INTERRUPTED = 130


ERROR: Final = "error"
WARNING: Final = "warning"


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong at one place of a file. `rule` is the id of the rule that found it, if any."""

    file: str
    line: int
    path: str
    message: str
    hint: str = ""
    severity: str = ERROR
    rule: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        message = self.message if self.severity == ERROR else f"{self.severity}: {self.message}"
        # For an option of the command line, the place already holds the path.
        path = "" if place == f"--set {self.path}" else self.path
        text = ": ".join(filter(None, (place, path, message))) + (f" [{self.rule}]" if self.rule else "")
        return joined([text, f"  hint: {self.hint}"]) if self.hint else one_line(text)


class InvalidValue(ValueError):
    """A value that a model rejects: what is wrong with it, and what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class ImagegenError(Exception):
    """Base of all errors that users see without a traceback."""

    exit_code = ExitCode.BUG

    def __init__(
        self, message: str, *, problems: Iterable[Problem] = (), hint: str = "", details: Iterable[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.problems = tuple(sorted(problems))
        self.hint = hint
        self.details = tuple(details)


class ConfigError(ImagegenError):
    """The config or the command line is invalid. Holds every problem, not only the first."""

    exit_code = ExitCode.USAGE


class ToolError(ImagegenError):
    """A tool is missing or too old. The hint has the commands that install it."""

    exit_code = ExitCode.TOOL


class VerificationError(ImagegenError):
    """Downloaded bytes, or a manifest and the documents about it, are not what they must be."""

    exit_code = ExitCode.VERIFICATION


class RefusedError(ImagegenError):
    """The request is valid, but imagegen refuses it."""

    exit_code = ExitCode.REFUSED


class UnavailableError(RefusedError):
    """A cloud was busy, failed or could not be reached before anything was started: a later attempt may succeed."""

    exit_code = ExitCode.BUILD


class BuildError(ImagegenError):
    """The build ran and failed."""

    exit_code = ExitCode.BUILD


class PublishError(ImagegenError):
    """Publishing is incomplete; running it again resumes."""

    exit_code = ExitCode.PUBLISH


class ConflictError(ImagegenError):
    """A stored manifest contradicts the new one."""

    exit_code = ExitCode.CONFLICT
