"""One download that a config or the catalogue requests, and the forms of URLs: how they may be shown, and the base URL
of several files, which is a folder, a template, or one archive with all of them. Pure.
"""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

from imagegen.authenticode.signer import SignerRule
from imagegen.base.hosts import plain_host
from imagegen.steps.resource import ArtifactForm

Form = Literal["folder", "template", "archive"]

NAME: Final = "name"
VERSION: Final = "version"
_ARCHIVES: Final = (".zip", ".tar.gz", ".tgz", ".tar")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def find_form(base: str) -> Form:
    """What a base URL is. A brace makes it a template. A folder is never named like an archive."""
    if "{" in base or "}" in base:
        return "template"
    return "archive" if is_archive(base) else "folder"


def is_archive(name: str) -> bool:
    """Whether a URL or a file name ends like an archive's."""
    return name.lower().endswith(_ARCHIVES)


def make_url(base: str, path: str, version: str | None) -> str:
    """The URL of the file that has this path in a folder. In a template, `{name}` is its name without `.exe`."""
    form = find_form(base)
    if form == "archive":
        return base
    if form == "folder":
        return f"{base.rstrip('/')}/{path}"
    values = {NAME: path.rpartition("/")[2].removesuffix(".exe"), **({VERSION: version} if version else {})}
    return fill(base, values)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders. Unknown ones stay as they are: `find_faults` names them."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def find_faults(template: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with a template, each fault with its hint. `known` are the names of its placeholders."""
    write = " or ".join(f"{{{name}}}" for name in known)
    names = dict.fromkeys(_PLACEHOLDER.findall(template))
    for name in names:
        if name not in known:
            yield f"unknown placeholder {{{name}}}", f"write {write}"
    if stray := re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        side = "closing" if stray[0] == "{" else "opening"
        yield f'the brace "{stray[0]}" has no {side} brace', f"write {write}, and %7B or %7D for a brace of the URL"
    elif NAME in known and NAME not in names:
        yield (
            "the template has no {name}, so all files would have one URL",
            "write {name} where the name of the program is, or the URL of one archive with all of them",
        )


@dataclasses.dataclass(frozen=True)
class Override:
    """An operator's own URL, which replaces the public one, and what the operator requires of it."""

    url: str
    sha256: str | None = None
    signer: SignerRule | None = None


@dataclasses.dataclass(frozen=True)
class TakenFile:
    """A file that is taken from an artifact: its path in the published archive, and its name on the machine."""

    path: str
    name: str


@dataclasses.dataclass(frozen=True)
class PublishedDigest:
    """Where the digest of an artifact is published. If it is `required`, the artifact is refused without it."""

    url: str
    required: bool


@dataclasses.dataclass(frozen=True)
class ArtifactRequest:
    """The URL of an artifact, and what its bytes must be."""

    name: str
    url: str
    sha256: str | None
    """The digest that the operator requires. None accepts the bytes of the first download."""
    form: ArtifactForm
    """The form that the resources need which use it. An archive's files are pinned one by one."""
    key: str
    """The config's key that has or replaces the URL, for hints: `overrides.containerd_url`, `executables[0].url`."""
    published: str
    """The public URL before override and mirror: it names the release."""
    product: str = ""
    """The product of the catalogue that it is; empty if the step gives its URL."""
    version: str = ""
    """The version, as the product's URL has it; empty if the step does not say it."""
    file_key: str = ""
    """The config's key of the URL of this file alone, if `key` is of several files."""
    own: bool = False
    """Whether the URL is the config's. No mirror replaces it."""
    files: tuple[TakenFile, ...] = ()
    """The files that are taken from an artifact of the config, wherever they are in it. Empty if the layout must be the
    published one, or if the bytes are used as they are."""
    any_name: bool = False
    """Whether the only program of an archive is the right one, whatever its name: the config chooses the name."""
    digest: PublishedDigest | None = None
    """Where its project publishes its digest, if that is known."""
    released: str = ""
    """The day of its release, if the catalogue knows it."""
    signer: SignerRule | None = None
    """The only signer of its programs, if the override has one."""

    @property
    def is_one_file(self) -> bool:
        """Whether the file itself will do in place of an archive with it."""
        return len({file.name for file in self.files}) == 1

    def is_at(self, url: str) -> bool:
        """Whether this URL has the same bytes: it is its own, the public one of its release, or a mirror's of that."""
        if url == self.url:
            return True
        copied = "/" + self.published.removeprefix("https://")
        return not self.own and (url == self.published or url.endswith(copied))

    @property
    def may_be_archive(self) -> bool:
        """Whether its bytes may be an archive, whose files are pinned."""
        return self.form == "archive" or bool(self.files)

    @property
    def may_be_plain(self) -> bool:
        """Whether its bytes may be something else than an archive whose files are pinned."""
        return self.form != "archive" or self.is_one_file


def shown_url(url: str) -> str:
    """The URL without the parts that may hold a secret: query, fragment and credentials."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an invalid URL"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


def place_of(url: str, places: Collection[str]) -> str | None:
    """The place that the URL is in, the innermost if it is in several: a host, or a host and the path of a file or of a
    folder on it."""
    whole = host_of(url) + urllib.parse.urlsplit(url).path
    around = [place for place in places if whole == place or whole.startswith(f"{place.rstrip('/')}/")]
    return max(around, key=len, default=None)


def host_of(url: str) -> str:
    """The host of a URL with its port, in the form for comparisons."""
    return plain_host(urllib.parse.urlsplit(url).netloc.rpartition("@")[2])
