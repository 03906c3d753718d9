"""`imagegen artifacts`: downloads, by themselves and in the cache. Each command is a module of this package."""

from typing import Final

import click

from imagegen.cli.verb import make_verbs

VERBS: Final = {
    "inspect": "Show what is in a download.",
    "mirror": "Fill a mirror with all downloads of configs.",
}


@click.group(commands=make_verbs(VERBS, "artifacts"))
def artifacts() -> None:
    """Inspect downloads, and copy them to a mirror."""
