"""One run of a command: what its stages share, so that no function hands it on piece by piece."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from imagegen.base.console import Console
from imagegen.build.tools import cache_folder
from imagegen.fetch.cache import Cache, find_folder, size_limit
from imagegen.providers import RunFacts
from imagegen.trust.sources import CrlUse


def utc_now() -> datetime.datetime:
    """The time, in UTC."""
    return datetime.datetime.now(datetime.UTC)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run(RunFacts):
    """The facts of a run that a provider sees, and what else every stage uses."""

    console: Console
    out: Path = Path("out")
    """The folder of trees, logs, journals and manifests."""
    clock: Callable[[], datetime.datetime] = utc_now
    crls: CrlUse = dataclasses.field(default_factory=CrlUse)
    """The CRLs that were read in this run."""

    @classmethod
    def start(cls, environ: Mapping[str, str], labels: Mapping[str, str], console: Console, out: Path) -> Run:
        """A run that starts now."""
        return cls(environ, labels, "", console=console, out=out).again()

    def again(self) -> Run:
        """The run of the next target of the same command: it starts now and has its own id, and the rest is shared."""
        now = self.clock()
        # The random end tells runs of the same second apart.
        run_id = f"{now:%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}"
        return dataclasses.replace(self, started=f"{now:%Y-%m-%dT%H:%M:%SZ}", id=run_id)

    @functools.cached_property
    def cache(self) -> Cache:
        """The cache of downloads of this user."""
        folder = find_folder(self.environ, cache_folder(self.environ) / "artifacts")
        return Cache(folder, size_limit(self.environ), self.console.warn)
