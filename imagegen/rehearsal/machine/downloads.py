r"""Artifacts: from the caller's fetch, verified by size and sha256, kept under C:\ProgramData\imagegen\artifacts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.stop import Exit, StopError

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.events import Transcript
    from imagegen.rehearsal.machine.plan import Artifact
    from imagegen.rehearsal.machine.windows import Machine

ARTIFACTS = HOME + r"\artifacts"
# The bytes at an address. ConnectionError and TimeoutError are worth another try, any other OSError is final.
Fetch = Callable[[str], bytes]
TRIES = 8
TRIES_AT_WRONG_BYTES = 2


def path_of(artifact: Artifact) -> str:
    return f"{ARTIFACTS}\\{artifact.sha256}"


def announce(machine: Machine, transcript: Transcript, name: str, artifact: Artifact) -> bool:
    """Says whether the artifact must be fetched; a right one that is there already need not be."""
    path = path_of(artifact)
    ready = machine.files.is_file(path) and not _wrong(machine.files.read(path), artifact)
    transcript.artifact(name, "ready" if ready else "fetching", artifact.size)
    return not ready


def bring(machine: Machine, transcript: Transcript, fetch: Fetch, name: str, artifact: Artifact) -> None:
    """Makes the artifact's file be there."""
    place = _public(artifact.url)
    if not artifact.url.startswith("https://"):
        raise StopError(Exit.FAILED, f"artifact {name}: {place} is not https")
    tries = 1
    data = _fetch(fetch, name, artifact.url, place)
    while why := _wrong(data, artifact):
        if tries == TRIES_AT_WRONG_BYTES:
            raise StopError(Exit.WRONG_BYTES, f"artifact {name} from {place}: {why}")
        tries += 1
        data = _fetch(fetch, name, artifact.url, place)
    machine.files.make_folder(ARTIFACTS)
    machine.files.write(path_of(artifact), data)
    transcript.artifact(name, "ready", artifact.size)


def _fetch(fetch: Fetch, name: str, url: str, place: str) -> bytes:
    attempt = 1
    while True:
        try:
            return fetch(url)
        except OSError as error:
            if attempt == TRIES or not isinstance(error, ConnectionError | TimeoutError):
                raise StopError(Exit.FAILED, f"artifact {name} from {place}: {error}") from error
            attempt += 1


def _wrong(data: bytes, artifact: Artifact) -> str:
    if len(data) != artifact.size:
        return f"size is {len(data)}, the plan says {artifact.size}"
    found = hashlib.sha256(data).hexdigest()
    return "" if found == artifact.sha256 else f"sha256 is {found}, the plan says {artifact.sha256}"


def _public(url: str) -> str:
    """Without query and user: both can hold a secret."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
