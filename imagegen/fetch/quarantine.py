"""Refuses artifacts that were published too recently for others to have noticed what is wrong with them. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from imagegen.base.errors import RefusedError
from imagegen.base.lines import counted
from imagegen.fetch.lock import TIME_FORM
from imagegen.fetch.request import shown_url

if TYPE_CHECKING:
    from imagegen.fetch.lock import LockedArtifact
    from imagegen.fetch.request import ArtifactRequest


def check_quarantine(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], days: int, now: str
) -> None:
    """Refuse each artifact that was published less than so many days ago, or nobody knows when.

    One with a sha256 of the config is accepted: the operator has decided on its bytes. `now` is an ISO time.
    """
    faults = [*_faults(requests, locked, days, _parse(now))] if days else []
    if not faults:
        return
    keys = ", ".join(sorted({request.key for request, _ in faults}))
    raise RefusedError(
        f"artifacts.quarantine_days is {days}, which refuses {counted(len(faults), 'artifact')}",
        details=[f"{request.name}: {shown_url(request.url)} {fault}" for request, fault in faults],
        hint=f"wait, or choose an older version; to accept these bytes, write {{url, sha256}} in {keys}",
    )


def _faults(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], days: int, now: datetime.datetime
) -> Iterator[tuple[ArtifactRequest, str]]:
    for name, request in sorted(requests.items()):
        published = locked[name].published
        if request.sha256 is not None:
            continue
        if published is None:
            yield request, "has an unknown age: its server sends no Last-Modified"
        elif (free := _parse(published) + datetime.timedelta(days=days)) > now:
            yield request, f"was published on {published[:10]}, and may be used from {free.strftime(TIME_FORM)} on"


def _parse(time: str) -> datetime.datetime:
    return datetime.datetime.strptime(time, TIME_FORM)
