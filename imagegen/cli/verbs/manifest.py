"""`imagegen manifest`: reads the manifests of built images."""

import shlex
from pathlib import Path

import click

from imagegen.cli import options
from imagegen.cli.output import manifest_line, print_as, print_manifest
from imagegen.cli.stored import choose_manifest, find_store
from imagegen.lines import one_line
from imagegen.manifest.store import LocalStore


@click.group()
def manifest() -> None:
    """Read the manifests of built images."""


@manifest.command("list")
@options.STORE_FOLDER
@options.OUT
@options.FORMAT
def manifest_list(folder: Path | None, out: Path, form: str) -> None:
    """List the manifests, newest first.

    \b
    With FOLDER those of another folder, for example of a rehearsal:
      imagegen manifest list out/rehearsal/windows-2022-containerd-prod-x1y2z3
    """
    store = find_store(folder, out)
    listing = LocalStore(store).list()
    if not listing.records and not listing.bad:
        click.echo(one_line(f"there are no manifests in {store}"), err=True)
        rehearsals = store.parent.glob("rehearsal/*/manifests")
        if newest := max(rehearsals, key=lambda path: path.stat().st_mtime, default=None):
            line = f"hint: the newest rehearsal's: imagegen manifest list {shlex.quote(str(newest.parent))}"
            click.echo(one_line(line), err=True)
    print_as(form, [item.model_dump(mode="json") for item in listing.records], map(manifest_line, listing.records))
    listing.reject_bad()


@manifest.command("show")
@click.argument("image_id")
@options.STORE_FOLDER
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, folder: Path | None, out: Path, form: str) -> None:
    """Show the manifest of the image whose id begins with IMAGE_ID, in OUT or in FOLDER."""
    store = find_store(folder, out)
    listing = LocalStore(store).list()
    print_manifest(choose_manifest(image_id, listing, store), form)
    listing.reject_bad()
