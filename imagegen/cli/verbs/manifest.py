"""`imagegen manifest`: reads the records of images that were made."""

import shlex
from pathlib import Path

import click

from imagegen.cli import options
from imagegen.cli.show import manifest_line, print_json, print_manifest
from imagegen.errors import ConfigError
from imagegen.lines import counted, one_line
from imagegen.manifest.store import LocalStore

_FOLDER = click.argument("folder", required=False, type=click.Path(path_type=Path))


@click.group()
def manifest() -> None:
    """Read the manifests of images that were made."""


@manifest.command("list")
@_FOLDER
@options.OUT
@options.FORMAT
def manifest_list(folder: Path | None, out: Path, form: str) -> None:
    """List the manifests, newest first.

    \b
    Those of FOLDER instead of OUT, for example of a rehearsal:
      imagegen manifest list out/rehearsal/windows-2022-containerd-prod-x1y2z3
    """
    place = _existing(folder) if folder else out
    found = LocalStore(place / "manifests").list()
    if not found.records and not found.bad:
        _tell_where_else(place)
    if form == "json":
        print_json([item.model_dump(mode="json") for item in found.records])
    else:
        for item in found.records:
            click.echo(one_line(manifest_line(item)))
    found.reject_bad()


def _existing(folder: Path) -> Path:
    """A folder that somebody named and that is none, or is the store itself, is not an empty store."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name a folder that holds `manifests`, as --out does")
    return folder.parent if folder.name == "manifests" else folder


def _tell_where_else(place: Path) -> None:
    """An empty list says where it looked; rehearsals keep their manifests in folders of their own."""
    click.echo(one_line(f"there are no manifests in {place / 'manifests'}"), err=True)
    rehearsals = sorted((place / "rehearsal").glob("*/manifests"), key=lambda path: path.stat().st_mtime)
    if rehearsals:
        line = f"hint: the newest rehearsal's: imagegen manifest list {shlex.quote(str(rehearsals[-1].parent))}"
        click.echo(one_line(line), err=True)


@manifest.command("show")
@click.argument("image_id")
@_FOLDER
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, folder: Path | None, out: Path, form: str) -> None:
    """Show the manifest of the image whose id begins with IMAGE_ID, of FOLDER instead of OUT where it is given."""
    place = _existing(folder) if folder else out
    listing = LocalStore(place / "manifests").list()
    found = [item for item in listing.records if item.image_id.startswith(image_id)]
    if not found:
        listing.reject_bad()
    if len(found) != 1:
        what = "no manifest" if not found else counted(len(found), "manifest")
        raise ConfigError(
            f"{what} in {place / 'manifests'} of an image {image_id!r}",
            hint=f"`imagegen manifest list {shlex.quote(str(place))}` shows them",
        )
    print_manifest(found[0], form)
    listing.reject_bad()
