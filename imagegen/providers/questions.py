"""What `imagegen init` asks about a cloud, and what it writes of the answers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.providers.registry import parts

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Question:
    """One question, which is an option of the command too."""

    name: str
    path: tuple[str, ...]
    """Where the answer stands in the target."""
    prompt: str
    help: str
    example: str
    default: str | None = None
    """May name the `{release}` of Windows."""
    metavar: str | None = None

    @property
    def option(self) -> str:
        """The option of the command."""
        return f"--{self.name.replace('_', '-')}"


@dataclasses.dataclass(frozen=True)
class CloudQuestions:
    """The questions of one cloud."""

    title: str
    questions: tuple[Question, ...]
    text: str
    """The target in a config, with each answer by its question's name in braces, and `{cidrs}` for the networks."""


def all_questions() -> Mapping[str, CloudQuestions]:
    """The questions of each provider that has some."""
    return {name: module.QUESTIONS for name, module in parts("questions").items()}
