"""Builds on the first of the builder's sizes for which the cloud has capacity."""

import itertools
from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from imagegen.console import Console
from imagegen.errors import BuildError

Built = TypeVar("Built")


def build_on_first(
    sizes: Sequence[str], build: Callable[[str], Built], *, no_capacity: Set[str], console: Console
) -> Built:
    """Call `build` with each size in turn, until it does not fail for lack of capacity.

    `no_capacity` are the cloud's error codes for a lack of capacity.
    """
    for size, following in itertools.pairwise(sizes):
        try:
            return build(size)
        except BuildError as error:
            codes = [code for code in sorted(no_capacity) if code in str(error.message)]
            if not codes:
                raise
            for line in (f"{size} is not available now ({codes[0]}): trying {following}", *error.hint.splitlines()):
                console.warn(line)
    return build(sizes[-1])
