"""Names the keys of a target as its config does, in what a provider says about it."""

import contextlib
from collections.abc import Iterator

from imagegen.base.errors import ImagegenError
from imagegen.settle.spec import Spec


def with_keys_of(spec: Spec, text: str) -> str:
    """A provider's text with the keys of this target.

    A provider names them as those of the target that has its cloud's name, and a config may call its target otherwise.
    """
    return text.replace(f"targets.{spec.provider}", f"targets.{spec.target}")


@contextlib.contextmanager
def errors_of(spec: Spec) -> Iterator[None]:
    """Within it, errors name the keys of this target."""
    try:
        yield
    except ImagegenError as error:
        error.message, error.hint = with_keys_of(spec, error.message), with_keys_of(spec, error.hint)
        error.details = tuple(with_keys_of(spec, line) for line in error.details)
        raise
