"""The checks of a cloud before a build: each check has a verdict, and a failed one does not hide the others."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Final

from imagegen.base.errors import ImagegenError, RefusedError

OK: Final = "ok"
WRONG: Final = "wrong"
UNKNOWN: Final = "unknown"
SIGN_IN: Final = "sign-in"


@dataclasses.dataclass(frozen=True)
class Check:
    """The result of one check. `unknown` means that the cloud did not answer; the message says why."""

    subject: str
    verdict: str
    message: str
    hint: str = ""
    stops: bool = False
    """No other check can run until this one passes."""
    of_publishing: bool = False
    """A build that is not published does not need it."""


def run_check(
    subject: str,
    look: Callable[[], Iterable[Check]],
    explain_errors: contextlib.AbstractContextManager[None] | None = None,
) -> list[Check]:
    """Run the checks of `look`; an error that ends it becomes a check too.

    `explain_errors` turns errors of the cloud's SDK into errors of imagegen.
    """
    checks: list[Check] = []
    try:
        with explain_errors or contextlib.nullcontext():
            for check in look():
                checks.append(check)  # the checks before an error are kept
    except ImagegenError as error:
        checks.append(failed_check(subject, error))
    return checks


def failed_check(subject: str, error: ImagegenError) -> Check:
    """An error as a check. A RefusedError that wraps an error of the SDK means that the cloud gave no answer."""
    is_unknown = isinstance(error, RefusedError) and error.__cause__ is not None
    return Check(subject, UNKNOWN if is_unknown else WRONG, error.message, error.hint)


def check_sizes(subject: str, fitting: list[str], others: list[str], hint: str) -> Check:
    """One check for all sizes of the builder: a build tries them in order, so one that fits is enough."""
    return Check(subject, OK if fitting else WRONG, "; ".join([*fitting, *others]), "" if fitting else hint)


def is_stopped(checks: Iterable[Check]) -> bool:
    """Whether one of these checks failed and prevents all others."""
    return any(check.stops and check.verdict == WRONG for check in checks)
