r"""Downloads artifacts with the caller's fetch to C:\ProgramData\imagegen\artifacts, verified by size and sha256."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.bundle import HOME
from imagegen.rehearsal.machine.stop import Exit, StopError

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.credentials_file import PrivateDownload
    from imagegen.rehearsal.machine.events import Transcript
    from imagegen.rehearsal.machine.plan import Artifact, Proxy
    from imagegen.rehearsal.machine.windows import Machine

ARTIFACTS = HOME + r"\artifacts"
# The bytes at an address, with a header Authorization or without one, through a proxy or, where that is None, without.
# ConnectionError and TimeoutError are retried. Any other OSError is final.
Fetch = Callable[[str, str, str | None], bytes]
TRIES = 8
TRIES_AT_WRONG_BYTES = 2


@dataclasses.dataclass(frozen=True)
class Web:
    """Access to the network with the plan's proxy, and to private artifacts by their names."""

    fetch: Fetch
    proxy: Proxy | None
    private: Mapping[str, PrivateDownload] = dataclasses.field(default_factory=dict)

    def through(self, url: str) -> str | None:
        """The proxy for a URL, like .NET's WebProxy, which matches scheme, host and a port other than 443."""
        if self.proxy is None:
            return None
        parts = urllib.parse.urlsplit(url)
        place = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port not in (None, 443) else "")
        direct = any(re.search(pattern, place, re.IGNORECASE) for pattern in self.proxy.bypass)
        return None if direct else self.proxy.url

    def get(self, name: str, url: str) -> bytes:
        """The bytes of an artifact. Its URL is that of the plan."""
        private = self.private.get(name)
        address, authorization = (private.url, private.authorization) if private else (url, "")
        return self.fetch(address, authorization, self.through(address))

    def place(self, url: str) -> str:
        """The URL as messages show it."""
        proxy = self.through(url)
        return f"{_public(url)} through {proxy}" if proxy else _public(url)


def path_of(artifact: Artifact) -> str:
    return f"{ARTIFACTS}\\{artifact.sha256}"


def announce(machine: Machine, transcript: Transcript, name: str, artifact: Artifact) -> bool:
    """Report the artifact's status, and return whether it must be downloaded."""
    path = path_of(artifact)
    ready = machine.files.is_file(path) and not _wrong(machine.files.read(path), artifact)
    transcript.artifact(name, "ready" if ready else "fetching", artifact.size)
    return not ready


def download(machine: Machine, transcript: Transcript, web: Web, name: str, artifact: Artifact) -> None:
    """Download an artifact to its file."""
    if not artifact.url.startswith("https://"):
        raise StopError(Exit.FAILED, f"artifact {name}: {_public(artifact.url)} is not https")
    place = web.place(artifact.url)
    tries = 1
    data = _fetch(web, name, artifact.url)
    while why := _wrong(data, artifact):
        if tries == TRIES_AT_WRONG_BYTES:
            raise StopError(Exit.WRONG_BYTES, f"artifact {name} from {place}: {why}")
        tries += 1
        data = _fetch(web, name, artifact.url)
    machine.files.make_folder(ARTIFACTS)
    machine.files.write(path_of(artifact), data)
    transcript.artifact(name, "ready", artifact.size)


def _fetch(web: Web, name: str, url: str) -> bytes:
    attempt = 1
    while True:
        try:
            return web.get(name, url)
        except OSError as error:
            if attempt == TRIES or not isinstance(error, ConnectionError | TimeoutError):
                raise StopError(Exit.FAILED, f"artifact {name} from {web.place(url)}: {error}") from error
            attempt += 1


def _wrong(data: bytes, artifact: Artifact) -> str:
    if len(data) != artifact.size:
        return f"size is {len(data)}, the plan says {artifact.size}"
    found = hashlib.sha256(data).hexdigest()
    return "" if found == artifact.sha256 else f"sha256 is {found}, the plan says {artifact.sha256}"


def _public(url: str) -> str:
    """The URL without query and credentials, which may hold a secret."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
