"""`imagegen manifest`: reads the manifests of built images."""

import shlex
from pathlib import Path

import click

from imagegen.cli import options
from imagegen.cli.output import manifest_line, print_as, print_manifest
from imagegen.errors import ConfigError
from imagegen.lines import counted, one_line
from imagegen.manifest.store import LocalStore

_FOLDER = click.argument("folder", required=False, type=click.Path(path_type=Path))


@click.group()
def manifest() -> None:
    """Read the manifests of built images."""


@manifest.command("list")
@_FOLDER
@options.OUT
@options.FORMAT
def manifest_list(folder: Path | None, out: Path, form: str) -> None:
    """List the manifests, newest first.

    \b
    With FOLDER those of another folder, for example of a rehearsal:
      imagegen manifest list out/rehearsal/windows-2022-containerd-prod-x1y2z3
    """
    store = _find_store(folder, out)
    listing = LocalStore(store).list()
    if not listing.records and not listing.bad:
        click.echo(one_line(f"there are no manifests in {store}"), err=True)
        rehearsals = store.parent.glob("rehearsal/*/manifests")
        if newest := max(rehearsals, key=lambda path: path.stat().st_mtime, default=None):
            line = f"hint: the newest rehearsal's: imagegen manifest list {shlex.quote(str(newest.parent))}"
            click.echo(one_line(line), err=True)
    print_as(form, [item.model_dump(mode="json") for item in listing.records], map(manifest_line, listing.records))
    listing.reject_bad()


def _find_store(folder: Path | None, out: Path) -> Path:
    """The folder `manifests` in FOLDER or in OUT. FOLDER must exist, and may also be the folder `manifests` itself."""
    if folder and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder", hint="name a folder that holds `manifests`, as --out does")
    return folder if folder and folder.name == "manifests" else (folder or out) / "manifests"


@manifest.command("show")
@click.argument("image_id")
@_FOLDER
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, folder: Path | None, out: Path, form: str) -> None:
    """Show the manifest of the image whose id begins with IMAGE_ID, in OUT or in FOLDER."""
    store = _find_store(folder, out)
    listing = LocalStore(store).list()
    found = [item for item in listing.records if item.image_id.startswith(image_id)]
    if not found:
        listing.reject_bad()
    if len(found) != 1:
        what = "no manifest" if not found else counted(len(found), "manifest")
        raise ConfigError(
            f"{what} in {store} of an image {image_id!r}",
            hint=f"`imagegen manifest list {shlex.quote(str(store.parent))}` shows them",
        )
    print_manifest(found[0], form)
    listing.reject_bad()
