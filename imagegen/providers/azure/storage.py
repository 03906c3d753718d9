"""Blob Storage: addresses of blobs with a user delegation SAS, and a folder in a container.

https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import hashlib
import hmac
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.azure.client import credential_for
from imagegen.providers.azure.failures import NotAzureError, explain_errors
from imagegen.providers.azure.settings import Auth
from imagegen.providers.storage import FileStore, Storage, StoredFile

if TYPE_CHECKING:
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import HTTPPolicy, SansIOHTTPPolicy
    from azure.core.rest import HttpRequest, HttpResponse

    Client = PipelineClient[HttpRequest, HttpResponse]

# The second is that of accounts with a DNS zone of their own.
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9]{3,24})\.(blob\.core\.windows\.net|z[0-9]{1,2}\.blob\.storage\.azure\.net)"
)
_ADDRESS: Final = re.compile(
    r"az://(?P<account>[a-z0-9]{3,24})/(?P<container>[a-z0-9][a-z0-9-]{2,62})(/(?P<prefix>[!-~]*))?"
)
_AUDIENCE: Final = "https://storage.azure.com/.default"
_VERSION: Final = "2022-11-02"
# The longest life of a user delegation key.
_LONGEST_S: Final = 7 * 24 * 3600
_SKEW: Final = datetime.timedelta(minutes=5)
_KEY_FIELDS: Final = ("Oid", "Tid", "Start", "Expiry", "Service", "Version")
_BLOCK_BYTES: Final = 16 * 2**20
_CONFLICTS: Final = (409, 412)
_REQUEST_ID: Final = "x-ms-request-id"


def is_host(host: str) -> bool:
    """Whether it is a host of Blob Storage."""
    return _HOST.fullmatch(host) is not None


class Signer:
    """Makes addresses with a signature for reading. A key of an account is used for all its addresses."""

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._keys: dict[str, _Key] = {}

    def __call__(self, urls: Sequence[str], valid_s: float) -> dict[str, str]:
        now = datetime.datetime.now(datetime.UTC)
        return {url: self._sign(urllib.parse.urlsplit(url), now, valid_s) for url in urls}

    def _sign(self, url: urllib.parse.SplitResult, now: datetime.datetime, valid_s: float) -> str:
        key = self._key(url.netloc, now, valid_s)
        resource = f"/blob/{url.netloc.partition('.')[0]}{urllib.parse.unquote(url.path)}"
        return f"{url.geturl()}?{_signature(key, resource)}"

    def _key(self, host: str, now: datetime.datetime, valid_s: float) -> _Key:
        end = now + _SKEW + datetime.timedelta(seconds=valid_s)
        known = self._keys.get(host)
        if known and known.end >= end:
            return known
        start = now - _SKEW
        # The next addresses are often for other files of the same run.
        end = max(end, start + datetime.timedelta(hours=1))
        if (end - start).total_seconds() > _LONGEST_S:
            raise RefusedError(
                f"an address of Blob Storage is valid for at most 7 days, but this build may download for "
                f"{valid_s / 86400:.1f} days",
                hint="lower `timeouts`",
            )
        with _client(self._run) as client, _explained(f"signing in for downloads from {host}"):
            self._keys[host] = _Key(start, end, _delegation_key(client, f"https://{host}", start, end))
        return self._keys[host]


@dataclasses.dataclass(frozen=True)
class _Key:
    """A user delegation key."""

    start: datetime.datetime
    end: datetime.datetime
    fields: Mapping[str, str] = dataclasses.field(repr=False)


def _delegation_key(client: Client, host: str, start: datetime.datetime, end: datetime.datetime) -> Mapping[str, str]:
    body = f"<KeyInfo><Start>{_time(start)}</Start><Expiry>{_time(end)}</Expiry></KeyInfo>"
    query = {"restype": "service", "comp": "userdelegationkey"}
    response = _send(client, "POST", f"{host}/", query, {"Content-Type": "application/xml"}, body.encode())
    text = response.text()
    fields = [*(f"Signed{name}" for name in _KEY_FIELDS), "Value"]
    found = {name: match[1] for name in fields if (match := re.search(rf"<{name}>([^<>&]+)</{name}>", text))}
    if len(found) != len(fields):
        raise NotAzureError(response, "something that is not a user delegation key", "XML")
    return found


def _signature(key: _Key, resource: str) -> str:
    """The query of a user delegation SAS for reading one blob, as long as the key lives."""
    times = _time(key.start), _time(key.end)
    of_key = [key.fields[f"Signed{name}"] for name in _KEY_FIELDS]
    # After the key: two other users and a correlation id; addresses; at the end, the blob's snapshot, the encryption
    # scope, and five headers of the answer.
    fields = ["r", *times, resource, *of_key, *[""] * 3, "", "https", _VERSION, "b", *[""] * 7]
    digest = hmac.digest(base64.b64decode(key.fields["Value"]), "\n".join(fields).encode(), "sha256")
    names = ("skoid", "sktid", "skt", "ske", "sks", "skv")
    query = {"sv": _VERSION, "sp": "r", "st": times[0], "se": times[1], "spr": "https", "sr": "b"}
    query |= dict(zip(names, of_key, strict=True)) | {"sig": base64.b64encode(digest).decode()}
    return urllib.parse.urlencode(query)


def _time(when: datetime.datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


@contextlib.contextmanager
def open_folder(address: str, run: RunFacts) -> Iterator[FileStore]:
    """The folder at az://ACCOUNT/CONTAINER/PREFIX."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(f"{address!a} is not the address of a folder in a container", hint=f"write {STORAGE.form}")
    prefix = (found["prefix"] or "").strip("/")
    with _client(run) as client:
        yield _Container(client, f"https://{found['account']}.blob.core.windows.net/{found['container']}", prefix)


class _Container:
    """A folder in a container."""

    def __init__(self, client: Client, url: str, prefix: str) -> None:
        self._client = client
        self._root = f"{url}/{urllib.parse.quote(prefix)}/" if prefix else f"{url}/"

    def _url(self, path: str) -> str:
        return f"{self._root}{urllib.parse.quote(path)}"

    def _send(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes = b"",
        expected: tuple[int, ...] = (),
    ) -> Any:  # noqa: ANN401 - the SDK's response
        """The answer, which is from the service: a proxy may answer anything with status 200."""
        response = _send(self._client, method, url, query, headers, body, expected)
        if _REQUEST_ID not in response.headers:
            raise NotAzureError(response, response.content_type or "no content", "an answer of Blob Storage")
        return response

    def find(self, path: str) -> StoredFile | None:
        with _explained(f"looking for {self._url(path)}"):
            found = self._send("HEAD", self._url(path), {}, {}, expected=(404,))
        if found.status_code == 404:
            return None
        return StoredFile(int(found.headers["Content-Length"]), found.headers.get("x-ms-meta-sha256", ""))

    def put(self, path: str, file: Path, sha256: str) -> None:
        blocks: list[str] = []
        with _explained(f"writing {self._url(path)}"), file.open("rb") as opened:
            while data := opened.read(_BLOCK_BYTES):
                blocks.append(base64.b64encode(f"{len(blocks):08}".encode()).decode())
                # The service compares it, and keeps no digest of the whole blob.
                digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
                query = {"comp": "block", "blockid": blocks[-1]}
                self._send("PUT", self._url(path), query, {"Content-MD5": digest}, data)
            listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
            body = f"<BlockList>{listed}</BlockList>".encode()
            headers = {"x-ms-meta-sha256": sha256, "Content-Type": "application/xml"}
            self._send("PUT", self._url(path), {"comp": "blocklist"}, headers, body)

    def read(self, path: str, limit: int) -> tuple[bytes, str] | None:
        if (found := self.find(path)) is None:
            return None
        if found.size > limit:
            raise RefusedError(f"{self._url(path)} is larger than {limit} bytes")
        with _explained(f"reading {self._url(path)}"):
            answer = self._send("GET", self._url(path), {}, {}, expected=(404,))
        return None if answer.status_code == 404 else (answer.content, answer.headers["ETag"])

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        headers = {"x-ms-blob-type": "BlockBlob", "Content-Type": "application/json"}
        headers |= {"If-Match": tag} if tag else {"If-None-Match": "*"}
        with _explained(f"writing {self._url(path)}"):
            answer = self._send("PUT", self._url(path), {}, headers, data, expected=_CONFLICTS)
        return answer.status_code not in _CONFLICTS


@contextlib.contextmanager
def _client(run: RunFacts) -> Iterator[Client]:
    from azure.core import PipelineClient
    from azure.core.pipeline.policies import BearerTokenCredentialPolicy, RetryPolicy
    from azure.core.rest import HttpRequest, HttpResponse

    with _explained("signing in to Azure"), credential_for(run.environ, Auth()) as credential:
        policies: list[SansIOHTTPPolicy[HttpRequest, HttpResponse] | HTTPPolicy[HttpRequest, HttpResponse]] = [
            RetryPolicy[HttpRequest, HttpResponse](),
            BearerTokenCredentialPolicy(credential, _AUDIENCE),
        ]
        with PipelineClient[HttpRequest, HttpResponse](
            "https://blob.core.windows.net", policies=policies, connection_timeout=20, read_timeout=120
        ) as client:
            yield client


def _explained(doing: str) -> contextlib.AbstractContextManager[None]:
    return explain_errors(doing, RefusedError)


def _send(
    client: Client,
    method: str,
    url: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes = b"",
    expected: tuple[int, ...] = (),
) -> Any:  # noqa: ANN401 - the SDK's response, whose body was read
    """The answer, with a status below 400 or an expected one."""
    from azure.core.rest import HttpRequest

    sent = {**headers, "x-ms-version": _VERSION}
    response = client.send_request(HttpRequest(method, url, params=dict(query), headers=sent, content=body or None))
    if response.status_code < 400 or response.status_code in expected:
        return response
    code = response.headers.get("x-ms-error-code", str(response.status_code))
    hint = "run it again when the cause is gone"
    if response.status_code in (401, 403):
        role = "Contributor" if method == "PUT" else "Reader"
        hint = f"give these credentials the role Storage Blob Data {role}, then run it again"
    raise RefusedError(
        f"{url.partition('?')[0]}: Azure rejects the request: {code}",
        hint=hint,
        details=(f"request id: {response.headers.get(_REQUEST_ID, 'unknown')}",),
    )


STORAGE: Final = Storage(
    scheme="az", form="az://ACCOUNT/CONTAINER/FOLDER", is_host=is_host, signer=Signer, open=open_folder
)
