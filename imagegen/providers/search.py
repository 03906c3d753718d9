"""Asks a cloud for one list of leftovers after another: one that is refused hides no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.errors import ConfigError, ImagegenError
from imagegen.providers import Remains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from imagegen.providers import Leftover


class Search:
    """What was found, and what could not be asked."""

    def __init__(
        self,
        explained: Callable[[str], AbstractContextManager[None]],
        is_answer: Callable[[BaseException | None], bool],
    ) -> None:
        """`explained` makes the SDK's errors ours; `is_answer`: the cloud itself said no, and may say yes to another.

        Where nobody answers, or the credentials are rejected, the next list would only be waited for in vain.
        """
        self._explained = explained
        self._is_answer = is_answer
        self._found: list[Leftover] = []
        self._faults: list[ImagegenError] = []
        self._is_over = False

    def ask(self, what: str, look: Callable[[], Iterable[Leftover]]) -> bool:
        """Whether all of `look` was seen; what it found before an error is kept."""
        if self._is_over:
            return False
        try:
            with self._explained(f"looking for {what}"):
                for leftover in look():
                    self._found.append(leftover)
        except ImagegenError as fault:
            self._faults.append(fault)
            self._is_over = isinstance(fault, ConfigError) or not self._is_answer(fault.__cause__)
            return False
        return True

    @property
    def remains(self) -> Remains:
        return Remains(tuple(self._found), tuple(self._faults), is_answered=not self._is_over)
