r"""Downloads artifacts with the caller's fetch to C:\ProgramData\imagegen\artifacts, verified by size and sha256."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from imagegen.rehearsal.machine.plan import HOME
from imagegen.rehearsal.machine.refusal import Exit, StopError

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.credentials_file import Delivered
    from imagegen.rehearsal.machine.events import Transcript
    from imagegen.rehearsal.machine.plan import Artifact, Proxy
    from imagegen.rehearsal.machine.windows import Machine

ARTIFACTS = HOME + r"\artifacts"
# The bytes at an address, with a header Authorization or without one, through a proxy or, where that is None, without.
# ConnectionError and TimeoutError are retried. Any other OSError is final.
Fetch = Callable[[str, str, str | None], bytes]
TRIES = 8


@dataclasses.dataclass(frozen=True)
class Web:
    """Access to the network with the plan's proxy, and to private artifacts by their names."""

    fetch: Fetch
    proxy: Proxy | None
    delivered: Delivered

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
        private = self.delivered.downloads.get(name)
        address, authorization = (private.url, private.authorization) if private else (url, "")
        for attempt in range(1, TRIES + 1):
            try:
                return self.fetch(address, authorization, self.through(address))
            except OSError as error:
                if attempt == TRIES or not isinstance(error, ConnectionError | TimeoutError):
                    # Without the query of a private address, which may hold a secret.
                    raise StopError(Exit.FAILED, f"artifact {name} from {url}: {error}", about=name) from error
        raise AssertionError


def path_of(artifact: Artifact) -> str:
    return f"{ARTIFACTS}\\{artifact.sha256}"


def fetch_artifacts(machine: Machine, transcript: Transcript, web: Web, artifacts: Mapping[str, Artifact]) -> None:
    """Download artifacts to their files, and report each."""
    missing = {}
    for name, artifact in artifacts.items():
        is_there = machine.files.is_file(path_of(artifact))
        transcript.artifact(name, "ready" if is_there else "fetching", artifact.size)
        if not is_there:
            missing[name] = artifact
    machine.files.make_folder(ARTIFACTS)
    for name, artifact in missing.items():
        data = web.get(name, artifact.url)
        for what, found, wanted in (
            ("size", len(data), artifact.size),
            ("sha256", hashlib.sha256(data).hexdigest(), artifact.sha256),
        ):
            if found != wanted:
                reason = f"artifact {name} from {artifact.url}: {what} is {found}, the plan says {wanted}"
                raise StopError(Exit.WRONG_BYTES, reason, about=name)
        machine.files.write(path_of(artifact), data)
        transcript.artifact(name, "ready", artifact.size)
