"""The verbs of the command line: one module of `imagegen.cli.verbs` for each, imported when its verb runs.

A verb's imports are its own: `imagegen --help` costs what click costs.
"""

import gc
import importlib
from collections.abc import Mapping
from typing import Any, Final

import click

from imagegen.cli.ending import READER_LEFT, drop_output

VERBS: Final[Mapping[str, str]] = {
    "build": "Build, publish and record an image.",
    "catalog": "Show the known versions, releases and overrides.",
    "doctor": "Ask the cloud whether a build can succeed.",
    "explain": "Show where every value comes from.",
    "init": "Write a first config.",
    "janitor": "List or remove what dead runs left in the cloud.",
    "lock": "Pin base images and artifacts.",
    "manifest": "Read the manifests of images that were made.",
    "plan": "Show what will be on the machine.",
    "publish": "Publish a built image.",
    "render": "Write the tree for Packer.",
    "rules": "List the rules, or explain one.",
    "schema": "Print the JSON Schema of a config.",
    "tools": "Find Packer and its plugins, or get them.",
    "validate": "Check configs.",
}


class Verb(click.Command):
    """A verb's name and its line of help. The rest is in its module, which is imported when the verb is called."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> click.Command:
        """The whole of it."""
        module = importlib.import_module(f"imagegen.cli.verbs.{self.name}")
        # When Python exits, it searches everything that was imported for garbage. Without this line, `validate` takes
        # 2.2 times as long as the import of its libraries, and 1.9 times with it.
        gc.freeze()
        command: click.Command = getattr(module, str(self.name))
        return command


class Verbs(click.Group):
    """The group of all verbs. It ends quietly when the reader of a verb's output leaves."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click would end with 1, the code of a bug.
            drop_output()
            raise click.exceptions.Exit(READER_LEFT) from None
