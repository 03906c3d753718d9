"""Fills a mirror with everything that the locks of some targets have."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imagegen.mirror.fill import Filled, OwnUrl, WantedFile, fill, open_mirror
from imagegen.mirror.images import WantedImage
from imagegen.mirror.source import Origin, Source
from imagegen.oci.registry import ask_over_https
from imagegen.plan.context import artifact_requests

if TYPE_CHECKING:
    from imagegen.fetch.lock import Lock
    from imagegen.plan.target import PreparedTarget
    from imagegen.run import Run


def fill_mirror(targets: Sequence[tuple[PreparedTarget, Lock]], address: str, *, dry_run: bool, run: Run) -> Filled:
    """Copy all artifacts and container images of these locks to the mirror at an address."""
    files: list[WantedFile] = []
    images: dict[str, WantedImage] = {}
    stop = threading.Event()
    for target, lock in targets:
        origin = Origin(
            private=target.private_hosts(run),
            hosts=target.hosts,
            ask=ask_over_https(run.environ, run.console, hosts=target.hosts, stop=stop),
            registry_credentials=functools.partial(target.registry_credentials, run),
        )
        requests = artifact_requests(target.steps)
        overrides = _overrides(target)
        files += [WantedFile.of(one, lock.artifacts[name], origin, overrides) for name, one in requests.items()]
        for name, image in target.images.items():
            wanted = WantedImage(image, lock.images[name], origin)
            images.setdefault(wanted.key, wanted)
    cache = run.cache
    with cache.opened() as parts, open_mirror(address, run, writes=not dry_run) as store:
        source = Source(cache, parts, run.environ, run.console, stop)
        return fill(files, [*images.values()], store, source, run.started, dry_run=dry_run)


def _overrides(target: PreparedTarget) -> dict[str, OwnUrl]:
    """The overrides by the keys of their requests. In a map, only the URL is another one for the mirror."""
    return {
        f"overrides.{name}": OwnUrl(f"overrides.{name}", value)
        if isinstance(value, str)
        else OwnUrl(f"overrides.{name}.url", value.url)
        for name, value in target.spec.config.overrides.items()
    }
