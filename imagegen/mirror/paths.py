"""Where the file of a URL is in a mirror: below its host. Pure.

A web server decodes the path of a request, so a mirror has the decoded name. No path leads out of the mirror.
"""

from __future__ import annotations

import itertools
import re
import urllib.parse
from collections.abc import Iterable
from typing import Final

from imagegen.base.errors import RefusedError
from imagegen.oci.mirror_layout import IMAGES, INDEX

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
# What no file system takes, or takes for something else.
_INVALID: Final = re.compile(r"[\x00-\x1f\x7f/\\\ufffd]|^\.{1,2}$|^$")
_LONGEST_NAME: Final = 255
_PLACEHOLDER: Final = re.compile(r"(\{[^{}]*\})")


def file_path(url: str) -> str:
    """Where the file of a URL is: below its host, as `artifacts.mirror` reads it."""
    host, _, path = url.removeprefix("https://").partition("/")
    if not url.startswith("https://") or not _HOST.fullmatch(host) or host in (INDEX, IMAGES):
        raise _invalid(url, "its host")
    if re.search(r"[?#]", path):
        raise _invalid(url, "its query or fragment")
    names = [urllib.parse.unquote(name) for name in path.split("/")]
    for name in names:
        if _INVALID.search(name) or len(name.encode()) > _LONGEST_NAME:
            raise _invalid(url, f"the part {name[:40]!a} of its path" if name else "an empty part of its path")
    return "/".join((host, *names))


def served_path(url: str) -> str:
    """Where a web server has the file, the folder or the template of a URL, below the URL of the mirror.

    A server decodes the path of a request. The placeholders of a template stay."""
    parts = _PLACEHOLDER.split(url.removeprefix("https://").rstrip("/"))
    return "".join(part if at % 2 else _quoted(urllib.parse.unquote(part)) for at, part in enumerate(parts))


def _quoted(path: str) -> str:
    return urllib.parse.quote(path, safe="/:@+~!$&'()*,;=")


def _invalid(url: str, what: str) -> RefusedError:
    return RefusedError(f"{url[:200]!a} cannot be in a mirror because of {what}", hint="use another URL for this file")


def reject_overlaps(paths: Iterable[str]) -> None:
    """Reject a path that is a file here and a folder there."""
    for one, other in itertools.pairwise(sorted(paths, key=lambda path: path.split("/"))):
        if other.startswith(f"{one}/"):
            raise RefusedError(
                f"a mirror cannot have both the file {one} and the file {other} below it",
                hint="use another URL for one of the two",
            )
