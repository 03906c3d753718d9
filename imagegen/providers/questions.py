"""The questions of `imagegen init` about a cloud, and the target that it writes from the answers."""

import dataclasses
from collections.abc import Mapping

from imagegen.providers.registry import parts


@dataclasses.dataclass(frozen=True)
class Question:
    """One question; it is also an option of the command."""

    name: str
    path: tuple[str, ...]
    """The path of the answer in the target."""
    prompt: str
    help: str
    example: str
    default: str | None = None
    """May contain `{release}`, the Windows release."""
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
    """The target as YAML: the name of a question in braces stands for its answer, and `{cidrs}` for the networks."""


def all_questions() -> Mapping[str, CloudQuestions]:
    """The questions by provider."""
    return {name: module.QUESTIONS for name, module in parts("questions").items()}
