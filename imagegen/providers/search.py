"""Collects leftovers from the lists of a cloud: an error in one list does not hide the others."""

import dataclasses
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

from imagegen.base.errors import ConfigError, ImagegenError
from imagegen.providers import Leftover, Remains


@dataclasses.dataclass
class Search:
    """The leftovers that were found so far, and the errors of lists that could not be read.

    After an error that no other list can avoid (no network, rejected credentials), the remaining lists are skipped.
    """

    explain_errors: Callable[[str], AbstractContextManager[None]]
    """Turns errors of the cloud's SDK into errors of imagegen."""
    is_answer: Callable[[BaseException | None], bool]
    """Whether the cloud itself answered with the error, so that it may still answer other requests."""
    _leftovers: list[Leftover] = dataclasses.field(default_factory=list)
    _faults: list[ImagegenError] = dataclasses.field(default_factory=list)
    _is_over: bool = False

    def collect(self, what: str, look: Callable[[], Iterable[Leftover]]) -> None:
        """Add the leftovers of one list."""
        if self._is_over:
            return
        try:
            with self.explain_errors(f"looking for {what}"):
                for leftover in look():
                    self._leftovers.append(leftover)  # the leftovers before an error are kept
        except ImagegenError as fault:
            self._faults.append(fault)
            self._is_over = isinstance(fault, ConfigError) or not self.is_answer(fault.__cause__)

    @property
    def remains(self) -> Remains:
        return Remains(tuple(self._leftovers), tuple(self._faults), is_answered=not self._is_over)
