"""`imagegen artifacts list`: the files in the cache, with the URLs and the lock that they are from."""

import time
from collections.abc import Iterator
from typing import Final

import click

from imagegen.base.console import seconds
from imagegen.base.lines import counted, shown_size
from imagegen.cli import arguments, options
from imagegen.cli.output import print_as
from imagegen.fetch.cache import CachedFile

_DAY: Final = 86400


@click.command("list")
@options.FORMAT
def artifacts_list(form: str) -> None:
    """List the files in the cache: sha256, size, how long ago each was used, its URLs, and the last lock that used it.

    The cache is the folder imagegen/artifacts below $XDG_CACHE_HOME or ~/.cache, or that in IMAGEGEN_CACHE_DIR.
    IMAGEGEN_CACHE_GB is its largest size, in GiB.
    """
    files = arguments.open_run().cache.files()
    print_as(form, [*map(file_json, files)], _lines(files))


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


def _lines(files: list[CachedFile]) -> Iterator[str]:
    for file in files:
        yield file_line(file)
        for record in file.records:
            yield f"  {record.url}{f' for {record.lock}' if record.lock else ''}"
    yield f"{counted(len(files), 'file')}, {shown_size(sum(file.size for file in files))}"
