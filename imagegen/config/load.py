"""A config file in, an ImageConfig out, or every problem of it at once with its line and the nearest known name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from imagegen.config.model import ImageConfig
from imagegen.documents.problems import model_problems, nearest
from imagegen.documents.yaml import Document, read_yaml
from imagegen.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def load_config(path: Path, *, overrides: Callable[[], Sequence[str]]) -> tuple[ImageConfig, Document]:
    """The config of a file; `overrides` tells the names that the steps' artifacts answer to, and is asked only then."""
    document = read_yaml(path)
    if not isinstance(document.data, dict):
        raise ConfigError(
            f"{document.file} is not a config", problems=[document.problem((), "must be keys and values")]
        )
    if not document.data:
        raise ConfigError(f"{document.file} is empty", hint="copy one of configs/ and change what differs")
    problems: list[Problem] = []
    config: ImageConfig | None = None
    try:
        config = ImageConfig.model_validate(document.data)
    except pydantic.ValidationError as error:
        problems += model_problems(error, document, ImageConfig)
    if document.data.get("overrides"):
        problems += _unknown_overrides(document, overrides())
    if problems or config is None:
        count = f"{len(problems)} problem{'s' if len(problems) != 1 else ''}"
        raise ConfigError(f"{document.file}: {count}", problems=problems)
    return config, document


def _unknown_overrides(document: Document, known: Sequence[str]) -> list[Problem]:
    asked = document.data.get("overrides")
    if not isinstance(asked, dict):
        return []
    return [
        document.problem(("overrides", name), f"no artifact is called {name!r}", nearest(name, known))
        for name in asked
        if name not in known
    ]
