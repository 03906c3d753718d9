"""One download that a config or the catalogue requests, and how its URL may be shown. Pure."""

import dataclasses
import urllib.parse
from collections.abc import Collection

from imagegen.authenticode.signer import SignerRule
from imagegen.base.hosts import plain_host
from imagegen.steps.resource import ArtifactForm


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
