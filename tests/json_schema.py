"""Imports jsonschema where a test needs it, and without most of its start."""

from __future__ import annotations

import functools
from typing import Any

import pytest


@functools.cache
def import_jsonschema() -> Any:  # noqa: ANN401 - jsonschema has no types
    """The package. It imports rfc3987_syntax, which builds 39 parsers when it is imported. jsonschema uses one of them,
    for addresses: each parser is built when it is used."""
    import lark

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lark, "Lark", _LazyParser)
        import jsonschema  # type: ignore[import-untyped]  # it ships no types
    return jsonschema


class _LazyParser:
    def __init__(self, grammar: str, **options: object) -> None:
        self._grammar, self._options = grammar, options

    @functools.cached_property
    def _parser(self) -> Any:  # noqa: ANN401 - lark's types are not checked here
        import lark

        return lark.Lark(self._grammar, **self._options)

    def parse(self, text: str, start: str | None = None) -> object:
        return self._parser.parse(text, start=start)
