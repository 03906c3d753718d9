"""`imagegen artifacts`: downloads, by themselves, in the cache and in a mirror."""

from __future__ import annotations

import datetime
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from imagegen.authenticode.model import MalformedData, Trust
from imagegen.authenticode.trust import LARGEST_BUNDLE, load_trust
from imagegen.base.console import Console, seconds
from imagegen.base.errors import ConfigError, PublishError, VerificationError
from imagegen.base.files import read_file
from imagegen.base.lines import counted, shown_size
from imagegen.cli import arguments, options
from imagegen.cli.inspection import inspection_json, inspection_lines, make_overrides
from imagegen.cli.output import print_as
from imagegen.fetch.cache import CachedFile
from imagegen.fetch.download import fetch
from imagegen.fetch.http import Web
from imagegen.fetch.locking import read_lock_for
from imagegen.fetch.request import shown_url
from imagegen.inspect.inspect import Inspection, check_file, inspect_file
from imagegen.mirror.fill import fill_mirror, find_storage

if TYPE_CHECKING:
    from imagegen.mirror.fill import Filled


_UNITS: Final = {"h": 3600, "d": 86400, "w": 7 * 86400, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _number_of(*units: str) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """Reads a number with one of the units."""

    def read(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
        match = re.fullmatch(rf"([0-9]{{1,6}})({'|'.join(units)})", text or "")
        if text is not None and match is None:
            raise click.BadParameter(f"{text!r} is not a number with a unit ({', '.join(units)}), such as 5{units[0]}")
        return int(match[1]) * _UNITS[match[2]] if match else None

    return read


@click.command("gc", short_help="List or remove what the cache need not keep.")
@click.option("--older-than", callback=_number_of("d", "h", "w"), metavar="30d", help="Files not used for so long.")
@click.option(
    "--to-size",
    callback=_number_of("GB", "MB", "TB"),
    metavar="5GB",
    help="The least used files, until the others have this size.",
)
@click.option("--all", "everything", is_flag=True, help="All files.")
@click.option("--delete", is_flag=True, help="Remove them, instead of listing them.")
@options.FORMAT
def artifacts_gc(older_than: int | None, to_size: int | None, everything: bool, delete: bool, form: str) -> None:
    """List the files that leave the cache by one of --older-than, --to-size and --all; remove them with --delete.

    A file that a running imagegen uses is never removed. No lock needs the cache: it only saves downloads.
    """
    if (older_than is not None) + (to_size is not None) + everything != 1:
        raise click.UsageError("choose one of --older-than, --to-size and --all")
    run = arguments.open_run()
    cache = run.cache
    going = _choose(cache.files(), older_than, 0 if everything else to_size)
    stuck = [file for file in going if delete and not cache.remove(file.sha256)]
    print_as(form, [*map(file_json, going)], map(file_line, going))
    gone = [file for file in going if file not in stuck]
    what = f"{counted(len(gone), 'file')}, {shown_size(sum(file.size for file in gone))}"
    run.console.say(f"removed {what}" if delete else f"{what} may go: the same command with --delete removes them")
    if stuck:
        raise PublishError(
            f"{counted(len(stuck), 'file')} could not be removed: another imagegen uses them",
            details=[file.sha256 for file in stuck],
            hint="run it again when that imagegen has ended",
        )


def _choose(files: list[CachedFile], older_than: int | None, to_size: int | None) -> list[CachedFile]:
    """The files to remove. They are in the order of their last use."""
    if older_than is not None:
        return [file for file in files if time.time() - file.used > older_than]
    left, going = sum(file.size for file in files), []
    for file in files:
        if left <= (to_size or 0):
            break
        going.append(file)
        left -= file.size
    return going


# What a config cannot have yet: the file is on this machine only.
_UNKNOWN_HOST = "https://HOST"


@click.command("inspect", short_help="Show what is in a download.")
@click.argument("source", metavar="URL|FILE")
@click.option(
    "--roots",
    type=click.Path(path_type=Path),
    help="A PEM file with the root certificates to trust, as artifacts.signatures.roots; by default public ones.",
)
@options.FORMAT
@options.PLAIN
@options.QUIET
def artifacts_inspect(source: str, roots: Path | None, form: str, plain: bool, quiet: bool) -> None:
    """Show what a download is: its programs with version and signature, and the lines that a config needs for it.

    \b
      imagegen artifacts inspect https://artifacts.example.com/containerd.tar.gz
      imagegen artifacts inspect ./kubelet.zip --roots our-roots.pem
    """
    console = arguments.open_run(plain=plain, quiet=quiet).console
    trust = _load_trust(roots)
    with tempfile.TemporaryDirectory(prefix="imagegen-inspect-") as folder:
        found = _inspect(source, trust, Path(folder), console)
    # Without a query, which may be a secret, and which no URL of a config has.
    name = Path(shown_url(source) if _is_url(source) else source).name
    overrides = make_overrides(found, name, shown_url(source) if _is_url(source) else f"{_UNKNOWN_HOST}/{name}")
    print_as(form, inspection_json(found, overrides), inspection_lines(found, overrides))


def _is_url(source: str) -> bool:
    return "://" in source


def _load_trust(roots: Path | None) -> Trust:
    now = datetime.datetime.now(datetime.UTC)
    if roots is None:
        return load_trust(now=now)
    try:
        return load_trust(now=now, roots=[read_file(roots, limit=LARGEST_BUNDLE)])
    except FileNotFoundError:
        raise ConfigError(
            f"{roots} does not exist", hint="give the path of a PEM file with root certificates"
        ) from None
    except MalformedData as error:
        raise ConfigError(f"{roots} is not a file of certificates: {error}", hint="give a PEM file") from error


def _inspect(source: str, trust: Trust, folder: Path, console: Console) -> Inspection:
    file, name = Path(source), source
    if _is_url(source):
        file, name = folder / "artifact", shown_url(source)
        fetch(source, file, Web(environ=os.environ, console=console))
    check_file(file, name)
    with console.task(f"reading {name}", None):
        return inspect_file(file, name, trust, folder)


_DAY: Final = 86400


@click.command("list", short_help="List the files in the cache.")
@options.FORMAT
def artifacts_list(form: str) -> None:
    """List the files in the cache: sha256, size, how long ago each was used, its URLs, and the last lock that used it.

    The cache is the folder imagegen/artifacts below $XDG_CACHE_HOME or ~/.cache, or that in IMAGEGEN_CACHE_DIR.
    IMAGEGEN_CACHE_GB is its largest size, in GiB.
    """
    files = arguments.open_run().cache.files()
    print_as(form, [*map(file_json, files)], _cache_lines(files))


def file_json(file: CachedFile) -> dict[str, object]:
    """A file of the cache for programs."""
    used = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(file.used))
    records = [{"url": record.url, "lock": record.lock} for record in file.records]
    return {"sha256": file.sha256, "size": file.size, "used": used, "from": records}


def file_line(file: CachedFile) -> str:
    """A file of the cache in one line."""
    age = max(0.0, time.time() - file.used)
    shown = counted(int(age // _DAY), "day") if age >= 2 * _DAY else seconds(age)
    return f"{file.sha256}  {shown_size(file.size):>9}  used {shown} ago"


def _cache_lines(files: list[CachedFile]) -> Iterator[str]:
    for file in files:
        yield file_line(file)
        for record in file.records:
            yield f"  {record.url}{f' for {record.lock}' if record.lock else ''}"
    yield f"{counted(len(files), 'file')}, {shown_size(sum(file.size for file in files))}"


_UNKNOWN_URL: Final = "https://MIRROR"


@click.command("mirror", short_help="Fill a mirror with all downloads of configs.")
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
    summary = {"to": address, "dry_run": dry_run, **_mirror_summary(filled)}
    print_as(form, summary, _mirror_lines(filled, address, served.rstrip("/"), dry_run=dry_run))


def _mirror_summary(filled: Filled) -> dict[str, Any]:
    return {
        "copied": dict(filled.copied),
        "kept": dict(filled.kept),
        "copied_images": list(filled.copied_images),
        "kept_images": list(filled.kept_images),
        "own_urls": dict(filled.own),
        "images_without_tarball": [image.name for image in filled.images if not image.tarball],
    }


def _mirror_lines(filled: Filled, address: str, url: str, *, dry_run: bool) -> Iterator[str]:
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


@click.command("verify", short_help="Verify the files in the cache.")
@options.FORMAT
def artifacts_verify(form: str) -> None:
    """Hash each file in the cache, and remove those with other bytes than they had.

    The exit code is 4 if there was one. The next lock downloads it again. A lock verifies the files that it uses.
    """
    cache = arguments.open_run().cache
    files = cache.files()
    whole = cache.verify([file.sha256 for file in files])
    # Another run may have removed a file meanwhile, which is no damage.
    damaged = sorted(cache.damaged)
    size = shown_size(sum(file.size for file in files))
    print_as(form, {"verified": len(whole), "damaged": damaged}, [f"{counted(len(whole), 'file')} verified, {size}"])
    if damaged:
        raise VerificationError(f"{counted(len(damaged), 'file')} of the cache had other bytes", details=damaged)


@click.group(commands=[artifacts_gc, artifacts_inspect, artifacts_list, artifacts_mirror, artifacts_verify])
def artifacts() -> None:
    """Inspect downloads, copy them to a mirror, and care for the cache of downloads."""
