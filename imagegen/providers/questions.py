"""The questions of `imagegen init` about a cloud, and the target that it writes from the answers."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

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
class Addition:
    """A part of an image that most clusters want, and that a config must ask for."""

    name: str
    what: str
    section: str
    """The key of the config, or its whole line."""
    text: str = ""
    """The lines below the key: `{minor}` stands for the Kubernetes minor. Several additions may have one key."""


@dataclasses.dataclass(frozen=True)
class CloudQuestions:
    """The questions of one cloud."""

    title: str
    questions: tuple[Question, ...]
    text: str
    """The target as YAML: the name of a question in braces stands for its answer, and `{cidrs}` for the networks."""
    additions: tuple[Addition, ...] = ()
    """What images of this cloud often have."""


_SSH: Final = Addition("ssh", "an OpenSSH server, by which Cluster API's tests and tools collect logs", "ssh: {}")


def find_additions(clouds: Iterable[str]) -> Mapping[str, Addition]:
    """The additions for images of these clouds, by name."""
    offered = (_SSH, *(one for cloud in clouds for one in all_questions()[cloud].additions))
    return {one.name: one for one in offered}


def all_questions() -> Mapping[str, CloudQuestions]:
    """The questions by provider."""
    return {name: module.QUESTIONS for name, module in parts("questions").items()}
