"""`imagegen artifacts`: downloads, by themselves and in the cache. Each command is a module of this package."""

from typing import Final

import click

from imagegen.cli.verb import make_verbs

VERBS: Final = {
    "gc": "List or remove what the cache need not keep.",
    "inspect": "Show what is in a download.",
    "list": "List the files in the cache.",
    "verify": "Verify the files in the cache.",
}


@click.group(commands=make_verbs(VERBS, "artifacts"))
def artifacts() -> None:
    """Inspect downloads, and care for the cache of downloads."""
