"""`imagegen artifacts mirror`: copies the artifacts and container images of locks to a mirror."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from imagegen.base.errors import ConfigError
from imagegen.base.lines import counted
from imagegen.cli import arguments, options
from imagegen.cli.output import print_as
from imagegen.fetch.locking import read_lock_for
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
    help="The https URL at which the mirror is served, for the URLs to paste; by default artifacts.mirror.",
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

    A config with `artifacts.mirror: URL` downloads its artifacts and imports its container images from there. Nothing
    else in the config changes, except for URLs of its own: the command prints them.

    Each file is compared with the lock. Files that the mirror has already are kept, so that a run that was interrupted
    can be repeated. Nothing is removed or replaced.
    """
    if url is not None and not url.startswith("https://"):
        raise ConfigError(f"--url {url!a} must start with https://", hint="write the URL of the mirror")
    find_storage(address)
    run = arguments.open_run(plain=plain, quiet=quiet)
    chosen = []
    for config in configs:
        targets = arguments.prepare_targets(options.load_config(config, sets), target)
        file = arguments.find_lock_file(config, None, {})
        chosen += [(one, read_lock_for(one, file)) for one in targets]
    filled = fill_mirror(chosen, address, dry_run=dry_run, run=run)
    served = url or next((one.mirror_url for one, _ in chosen if one.mirror_url), _UNKNOWN_URL)
    summary = {"to": address, "dry_run": dry_run, **_summary(filled)}
    print_as(form, summary, _lines(filled, address, served.rstrip("/"), dry_run=dry_run))


def _summary(filled: Filled) -> dict[str, Any]:
    return {
        "copied": dict(filled.copied),
        "kept": dict(filled.kept),
        "copied_images": list(filled.copied_images),
        "kept_images": list(filled.kept_images),
        "own_urls": dict(filled.own),
        "images_without_tarball": [image.name for image in filled.images if not image.tarball],
    }


def _lines(filled: Filled, address: str, url: str, *, dry_run: bool) -> Iterator[str]:
    if dry_run:
        yield from (f"missing  {path}" for path in (*filled.copied, *filled.copied_images))
    verb = "would copy" if dry_run else "copied"
    there = len(filled.kept) + len(filled.kept_images)
    yield (
        f"{verb} {counted(len(filled.copied), 'file')} with {counted(sum(filled.copied.values()), 'byte')} and "
        f"{counted(len(filled.copied_images), 'container image')} to {address}; {there} were there"
    )
    for key, path in filled.own.items():
        yield f"{key} is a URL of the config, which artifacts.mirror does not replace: write {url}/{path}"
    for image in filled.images:
        if not image.tarball:
            registry = image.name.partition("/")[0]
            yield (
                f"{image.name} is too large for a tarball: in the closed network, write {registry} into "
                f"artifacts.pull_from, and a registry that has it into runtime.containerd.registry_mirrors.{registry}"
            )
