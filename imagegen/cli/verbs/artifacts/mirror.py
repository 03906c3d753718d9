"""`imagegen artifacts mirror`: copies the artifacts and container images of locks to a mirror."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from imagegen.cli import arguments, options
from imagegen.cli.output import print_as
from imagegen.errors import ConfigError
from imagegen.lines import counted
from imagegen.locking import read_lock_for
from imagegen.mirror.fill import find_storage
from imagegen.mirror.from_locks import fill_mirror

if TYPE_CHECKING:
    from imagegen.mirror.fill import Filled

_UNKNOWN_URL: Final = "https://MIRROR"


@click.command("mirror")
@click.argument("configs", metavar="CONFIG...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--to",
    "address",
    required=True,
    metavar="MIRROR",
    help="A folder, s3://BUCKET/FOLDER or az://ACCOUNT/CONTAINER/FOLDER.",
)
@click.option(
    "--url",
    metavar="URL",
    help="The https URL at which the mirror is served, for the lines to paste; by default artifacts.mirror.",
)
@options.TARGETS
@options.SET
@click.option("--dry-run", is_flag=True, help="Only show what is missing in the mirror.")
@options.FORMAT
@options.PLAIN
@options.QUIET
def artifacts_mirror(
    configs: tuple[Path, ...],
    address: str,
    url: str | None,
    target: str | None,
    sets: tuple[str, ...],
    dry_run: bool,
    form: str,
    plain: bool,
    quiet: bool,
) -> None:
    """Fill a mirror with all artifacts and container images of configs, from their locks.

    \b
      imagegen artifacts mirror configs/*.yaml --to /srv/mirror
      imagegen artifacts mirror prod.yaml --to s3://files/mirror --url https://files.example.com/m

    A config with `artifacts.mirror: URL` downloads its artifacts from there. Container images come from the tarballs of
    the mirror: the command prints the lines of `image_tarballs`.

    Each file is compared with the lock. Files that the mirror has already are kept, so that a run that was interrupted
    can be repeated. Nothing is removed or replaced.
    """
    if url is not None and not url.startswith("https://"):
        raise ConfigError(f"--url {url!a} must start with https://", hint="write the URL of the mirror")
    find_storage(address)
    console = arguments.open_console(plain=plain, quiet=quiet)
    chosen = []
    for config in configs:
        targets = arguments.prepare_targets(options.load_config(config, sets), target)
        file = arguments.find_lock_file(config, None, ())
        chosen += [(one, read_lock_for(one, file)) for one in targets]
    run = arguments.make_run_facts(())
    filled = fill_mirror(chosen, address, dry_run=dry_run, run=run, console=console)
    served = url or next((one.mirror_url for one, _ in chosen if one.mirror_url), _UNKNOWN_URL)
    tarballs = _tarballs(filled, served.rstrip("/"))
    summary = {"to": address, "dry_run": dry_run, **_summary(filled, tarballs)}
    print_as(form, summary, _lines(filled, address, tarballs, dry_run=dry_run))


def _tarballs(filled: Filled, url: str) -> list[dict[str, str]]:
    """The entries of `image_tarballs`."""
    return [
        {"name": image.name, "url": f"{url}/{image.tarball.path}", "sha256": image.tarball.sha256}
        for image in filled.images
        if image.tarball
    ]


def _summary(filled: Filled, tarballs: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "copied": dict(filled.copied),
        "kept": dict(filled.kept),
        "copied_images": list(filled.copied_images),
        "kept_images": list(filled.kept_images),
        "own_urls": dict(filled.own),
        "image_tarballs": tarballs,
        "images_without_tarball": [image.name for image in filled.images if not image.tarball],
    }


def _lines(filled: Filled, address: str, tarballs: list[dict[str, str]], *, dry_run: bool) -> Iterator[str]:
    if dry_run:
        yield from (f"missing  {path}" for path in (*filled.copied, *filled.copied_images))
    verb = "would copy" if dry_run else "copied"
    there = len(filled.kept) + len(filled.kept_images)
    yield (
        f"{verb} {counted(len(filled.copied), 'file')} with {counted(sum(filled.copied.values()), 'byte')} and "
        f"{counted(len(filled.copied_images), 'container image')} to {address}; {there} were there"
    )
    for key, path in filled.own.items():
        yield f"{key} is a URL of the config, which artifacts.mirror does not replace: its file is {path}"
    if tarballs:
        yield "to import the container images, write this in place of images and windows.container_images:"
        yield "image_tarballs:"
        # JSON is YAML.
        yield from (f"  - {json.dumps(tarball)}" for tarball in tarballs)
    for image in filled.images:
        if not image.tarball:
            yield f"{image.name} has no tarball: it is named by its digest, or larger than a tarball may be"
