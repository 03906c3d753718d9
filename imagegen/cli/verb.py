"""A command that is imported when it runs: `--help` of its group needs only its name and its line of help."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

import click

_PACKAGE: Final = "imagegen.cli.verbs"


class Verb(click.Command):
    """A verb's name and its line of help. The rest is in its module, which is imported when the verb is called.

    `build` is the function `build` of `verbs/build.py`, `sign-list` the function `sign_list` of `verbs/sign_list.py`,
    and `artifacts inspect` the function `artifacts_inspect` of `verbs/artifacts/inspect.py`.
    """

    def __init__(self, words: str, line: str) -> None:
        super().__init__(words.split()[-1], short_help=line)
        self._words = words.replace("-", "_").split()

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> click.Command:
        """The command in the verb's module."""
        module = importlib.import_module(".".join((_PACKAGE, *self._words)))
        command: click.Command = getattr(module, "_".join(self._words))
        return command


def make_verbs(lines: Mapping[str, str], *under: str) -> list[click.Command]:
    """The verbs of a group, each with its line of help."""
    return [Verb(" ".join((*under, name)), line) for name, line in lines.items()]
