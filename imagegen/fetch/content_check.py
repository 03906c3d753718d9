"""Compares what a lock says about its artifacts with their bytes, as far as the cache has them.

The plan and the machine take sizes and digests from the lock, and a lock is not trusted. What the cache does not have
is not downloaded for this: the machine compares it too, but hours later, and it costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.base.errors import VerificationError
from imagegen.base.lines import counted
from imagegen.base.parallel import results_of, run_all
from imagegen.inspect.archive import open_artifacts
from imagegen.trust.record import place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imagegen.fetch.lock import LockedArtifact
    from imagegen.fetch.lookup import Sources
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.inspect.archive import OpenedArtifact

_SHOWN: Final = 20


def verify_contents(
    requests: Mapping[str, ArtifactRequest], locked: Mapping[str, LockedArtifact], sources: Sources
) -> None:
    """Reject a lock that has another size or other members of an artifact in the cache than the file."""
    together: dict[str, list[ArtifactRequest]] = {}
    for name, request in requests.items():
        together.setdefault(locked[name].sha256, []).append(request)

    def compare(group: list[ArtifactRequest]) -> dict[str, list[str]]:
        with sources.cache.use(locked[group[0].name].sha256) as file:
            opened = open_artifacts(group, file) if file else {}
            return {name: list(_differences(locked[name], one)) for name, one in opened.items()}

    label = f"comparing {counted(len(requests), 'artifact')} with the lock"
    finished = run_all(compare, [*together.values()], label, sources.console, sources.stop)
    found = {name: lines for one in results_of(finished, "artifacts") for name, lines in one.items() if lines}
    if not found:
        return
    lines = [line for name in sorted(found) for line in found[name]]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    raise VerificationError(
        f"{sources.lock} is wrong about {counted(len(lines), 'file')}",
        details=[*lines[:_SHOWN], *more],
        hint=f"find out who changed it; `{sources.upgrade} {' '.join(sorted(found))}` reads the files again",
    )


def _differences(locked: LockedArtifact, opened: OpenedArtifact) -> Iterator[str]:
    size = opened.file.stat().st_size
    if size != locked.size:
        yield f"{opened.name} has {size} bytes, but the lock says {locked.size}"
    contents = opened.contents
    if contents and contents.dotted != locked.dotted:
        found, known = contents.dotted or "none", locked.dotted or "none"
        yield f"{opened.name} has ./ before {found} of its paths, but the lock says {known}"
    before, now, sizes = locked.members or {}, opened.members or {}, contents.sizes if contents else {}
    for path in sorted(before.keys() | now.keys()):
        where = place(opened.name, path)
        if path not in now:
            yield f"{where} is in the lock, but not in the archive"
        elif path not in before:
            yield f"{where} is in the archive, but not in the lock"
        elif before[path] != now[path]:
            yield f"{where} has sha256 {now[path]}, but the lock says {before[path]}"
        elif locked.sizes and locked.sizes[path] != sizes[path]:
            yield f"{where} has {sizes[path]} bytes, but the lock says {locked.sizes[path]}"
