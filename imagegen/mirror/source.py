"""The bytes for a mirror: from the cache, or downloaded into it. Each file is compared with its digest and its size."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.base.errors import VerificationError
from imagegen.base.hosts import HostPolicy
from imagegen.fetch.cache import Cache
from imagegen.fetch.credentials import Address, PrivateHosts
from imagegen.fetch.download import Download, check_digest, writing
from imagegen.fetch.request import shown_url

if TYPE_CHECKING:
    from imagegen.base.console import Console
    from imagegen.oci.image_lookup import Ask


@dataclasses.dataclass(frozen=True)
class Origin:
    """How the files of one config are downloaded."""

    private: PrivateHosts
    hosts: HostPolicy
    ask: Ask
    """Asks registries."""
    registry_credentials: Callable[[], Mapping[str, str]]
    """By the names of the registries. Fails if a variable is not set."""


@dataclasses.dataclass(frozen=True)
class Place:
    """One place of a file."""

    url: str
    origin: Origin
    key: str = ""
    """The config's key of the URL, for hints."""
    token: Callable[[], Address] | None = None
    """For a registry: its address with a token."""

    @property
    def address(self) -> Callable[[], Address] | None:
        if self.token is None and self.origin.private.is_private(self.url):
            return functools.partial(self.origin.private.address, self.url)
        return self.token


@dataclasses.dataclass(frozen=True)
class Source:
    """Gets files. Several threads may use it; `stop` ends all of them."""

    cache: Cache
    parts: Path
    environ: Mapping[str, str]
    console: Console
    stop: threading.Event = dataclasses.field(default_factory=threading.Event)

    @contextlib.contextmanager
    def get(self, place: Place, sha256: str, size: int) -> Iterator[Path]:
        """The file with this digest, which stays there while the block runs."""
        with contextlib.ExitStack() as held:
            file = held.enter_context(self.cache.use(sha256))
            if file is None:
                part = self._download(place, sha256)
                file = held.enter_context(self.cache.add(part, sha256))
            if file.stat().st_size != size:
                raise VerificationError(
                    f"{shown_url(place.url)} has {file.stat().st_size} bytes, but {size} are expected",
                    hint="the digest is right, so the expected size is wrong: look it up again with `imagegen lock`",
                )
            yield file

    def _download(self, place: Place, sha256: str) -> Path:
        part = self.parts / secrets.token_hex(16)
        download = Download(
            url=place.url,
            environ=self.environ,
            console=self.console,
            hosts=place.origin.hosts,
            key=place.key,
            address=place.address,
            stop=self.stop,
        )
        try:
            with writing(part), part.open("x+b") as file:
                fetched = download.fill(file)
            check_digest(place.url, fetched.sha256, sha256)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return part
