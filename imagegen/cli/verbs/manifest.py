"""`imagegen manifest`: reads the manifests of built images."""

import shlex
from pathlib import Path

import click

from imagegen.base.errors import ConfigError
from imagegen.base.lines import one_line
from imagegen.cli import options
from imagegen.cli.output import manifest_line, print_as, print_manifest
from imagegen.cli.stored import choose_manifest, find_manifest_file, find_store, is_image_id
from imagegen.record.manifest import ImageManifest
from imagegen.record.reading import InvalidDocument
from imagegen.record.store import LocalStore, read_manifest


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


def _read(file: Path) -> ImageManifest:
    try:
        return read_manifest(file).manifest
    except InvalidDocument as invalid:
        raise ConfigError(f"{file} cannot be shown", problems=invalid.problems) from None


@manifest.command("show")
@click.argument("image_id", metavar="MANIFEST")
@options.STORE_FOLDER
@options.OUT
@options.FORMAT
def manifest_show(image_id: str, folder: Path | None, out: Path, form: str) -> None:
    """Show a manifest: MANIFEST is the start of an image's id in OUT or in FOLDER, or the file of a manifest."""
    if Path(image_id).exists() or not is_image_id(image_id):
        print_manifest(_read(find_manifest_file(image_id, folder)), form)
        return
    store = find_store(folder, out)
    listing = LocalStore(store).list()
    print_manifest(choose_manifest(image_id, listing, store), form)
    listing.reject_bad()
