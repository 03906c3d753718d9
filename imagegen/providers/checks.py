"""What is looked at before a build: each look says what it saw, and one that fails hides no other."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from imagegen.errors import ImagegenError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OK: Final = "ok"
WRONG: Final = "wrong"
UNKNOWN: Final = "unknown"
SIGN_IN: Final = "sign-in"


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at. `unknown` could not be asked, and says why."""

    subject: str
    verdict: str
    message: str
    hint: str = ""
    stops: bool = False
    """Nothing else can be asked before this is right."""
    of_publishing: bool = False
    """A build that is not published does without it."""


def run_check(subject: str, look: Callable[[], Iterable[Check]]) -> list[Check]:
    """What a look found; an error that ends it is a check too."""
    checks: list[Check] = []
    try:
        for check in look():
            checks.append(check)  # what was found before an error is kept
    except ImagegenError as error:
        checks.append(failed_check(subject, error))
    return checks


def failed_check(subject: str, error: ImagegenError) -> Check:
    """An error as a check: a refusal that the SDK's own error is behind is no answer to what was asked."""
    unanswered = isinstance(error, RefusedError) and error.__cause__ is not None
    return Check(subject, UNKNOWN if unanswered else WRONG, error.message, error.hint)


def check_sizes(subject: str, fitting: list[str], others: list[str], hint: str) -> Check:
    """The sizes are tried in their order: one that fits is enough, and the others are told."""
    return Check(subject, OK if fitting else WRONG, "; ".join([*fitting, *others]), "" if fitting else hint)


def is_stopped(checks: Iterable[Check]) -> bool:
    """Whether one of them stands in the way of all others."""
    return any(check.stops and check.verdict == WRONG for check in checks)
