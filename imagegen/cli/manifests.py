"""`imagegen manifest`: reads the records of images that were made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from imagegen.cli import options

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def manifest() -> None:
    """Read the manifests of images that were made."""


@manifest.command("list")
@options.OUT
@options.FORMAT
def manifest_list(out: Path, form: str) -> None:
    """List the manifests, newest first."""
    from imagegen.cli.show import manifest_line, print_json
    from imagegen.manifest.store import LocalStore

    found = LocalStore(out / "manifests").list()
    if form == "json":
        print_json([item.model_dump(mode="json") for item in found])
    else:
        for item in found:
            click.echo(manifest_line(item))


@manifest.command("show")
@click.argument("image_id")
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, out: Path, form: str) -> None:
    """Show the manifest of the image whose id begins with IMAGE_ID."""
    from imagegen.cli.show import print_manifest
    from imagegen.errors import ConfigError
    from imagegen.manifest.store import LocalStore

    found = [item for item in LocalStore(out / "manifests").list() if item.image_id.startswith(image_id)]
    if len(found) != 1:
        what = "no manifest" if not found else f"{len(found)} manifests"
        raise ConfigError(
            f"{what} in {out / 'manifests'} of an image {image_id!r}", hint="`imagegen manifest list` shows them"
        )
    print_manifest(found[0], form)
