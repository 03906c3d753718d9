"""Builds on the first of the builder's sizes that the cloud can give now."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from imagegen.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from imagegen.console import Console


def build_on_first(
    sizes: Sequence[str], build: Callable[[str], object], *, no_capacity: Set[str], console: Console
) -> None:
    """Call `build` with one size after another for as long as it fails with one of the cloud's words for a lack."""
    for size, following in itertools.zip_longest(sizes, sizes[1:]):
        try:
            build(size)
            return
        except BuildError as error:
            lacking = [word for word in sorted(no_capacity) if word in str(error.message)]
            if following is None or not lacking:
                raise
            for line in (f"{size} cannot be had now ({lacking[0]}): trying {following}", *error.hint.splitlines()):
                console.warn(line)
