"""`imagegen artifacts`: downloads, by themselves and in the cache. Each command is a module of this package."""

from typing import Final

import click

from imagegen.cli.verb import make_verbs

VERBS: Final = {
    "gc": "List or remove what the cache need not keep.",
    "inspect": "Show what is in a download.",
    "list": "List the files in the cache.",
    "mirror": "Fill a mirror with all downloads of configs.",
    "verify": "Verify the files in the cache.",
}


@click.group(commands=make_verbs(VERBS, "artifacts"))
def artifacts() -> None:
    """Inspect downloads, copy them to a mirror, and care for the cache of downloads."""
