"""Blob Storage: addresses of blobs with a user delegation SAS, and a folder in a container.

The signature is made here: that of azure-storage-blob names the newest version of the service, whose texts to sign no
emulator knows. https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hmac
import re
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.providers import RunFacts
from imagegen.providers.azure.client import credential_for
from imagegen.providers.azure.failures import NotAzureError, explain_errors
from imagegen.providers.azure.settings import Auth
from imagegen.providers.storage import FileStore, Storage, StoredFile

if TYPE_CHECKING:
    from azure.storage.blob import BlobClient, BlobServiceClient, UserDelegationKey

# The second is that of accounts with a DNS zone of their own.
_HOST: Final = re.compile(
    r"(?P<account>[a-z0-9]{3,24})\.(blob\.core\.windows\.net|z[0-9]{1,2}\.blob\.storage\.azure\.net)"
)
_ADDRESS: Final = re.compile(
    r"az://(?P<account>[a-z0-9]{3,24})/(?P<container>[a-z0-9][a-z0-9-]{2,62})(/(?P<prefix>[!-~]*))?"
)
_VERSION: Final = "2022-11-02"
# The longest life of a user delegation key.
_LONGEST_S: Final = 7 * 24 * 3600
_SKEW: Final = datetime.timedelta(minutes=5)
_BLOCK_BYTES: Final = 16 * 2**20
_REQUEST_ID: Final = "x-ms-request-id"


def is_host(host: str) -> bool:
    """Whether it is a host of Blob Storage."""
    return _HOST.fullmatch(host) is not None


class Signer:
    """Makes addresses with a signature for reading. A key of an account is used for all its addresses."""

    def __init__(self, run: RunFacts) -> None:
        self._run = run
        self._keys: dict[str, tuple[datetime.datetime, UserDelegationKey]] = {}

    def __call__(self, urls: Sequence[str], valid_s: float) -> dict[str, str]:
        now = datetime.datetime.now(datetime.UTC)
        return {url: self._sign(urllib.parse.urlsplit(url), now, valid_s) for url in urls}

    def _sign(self, url: urllib.parse.SplitResult, now: datetime.datetime, valid_s: float) -> str:
        key = self._key(url.netloc, now, valid_s)
        resource = f"/blob/{url.netloc.partition('.')[0]}{urllib.parse.unquote(url.path)}"
        return f"{url.geturl()}?{_signature(key, resource)}"

    def _key(self, host: str, now: datetime.datetime, valid_s: float) -> UserDelegationKey:
        end = now + _SKEW + datetime.timedelta(seconds=valid_s)
        if host in self._keys and self._keys[host][0] >= end:
            return self._keys[host][1]
        start = now - _SKEW
        # The next addresses are often for other files of the same run.
        end = max(end, start + datetime.timedelta(hours=1))
        if (end - start).total_seconds() > _LONGEST_S:
            raise RefusedError(
                f"an address of Blob Storage is valid for at most 7 days, but this build may download for "
                f"{valid_s / 86400:.1f} days",
                hint="lower `timeouts`",
            )
        with _service(self._run, host) as service, _explained(f"signing in for downloads from {host}", host, "Reader"):
            key = service.get_user_delegation_key(start, end)
        if not (key.value and key.signed_oid and key.signed_expiry):
            raise RefusedError(
                f"signing in for downloads from {host}: the answer has no user delegation key",
                hint=f"allow access to {host}: a proxy (HTTPS_PROXY) or a web filter answers instead",
            )
        self._keys[host] = end, key
        return key


def _signature(key: UserDelegationKey, resource: str) -> str:
    """The query of a user delegation SAS for reading one blob, as long as the key lives."""
    of_key = {
        **{"skoid": key.signed_oid, "sktid": key.signed_tid, "skt": key.signed_start},
        **{"ske": key.signed_expiry, "sks": key.signed_service, "skv": key.signed_version},
    }
    texts = {name: str(value) for name, value in of_key.items()}
    # After the key: two other users and a correlation id; addresses; at the end, the blob's snapshot, the encryption
    # scope, and five headers of the answer.
    times = texts["skt"], texts["ske"]
    fields = ["r", *times, resource, *texts.values(), *[""] * 3, "", "https", _VERSION, "b", *[""] * 7]
    digest = hmac.digest(base64.b64decode(str(key.value)), "\n".join(fields).encode(), "sha256")
    query = {"sv": _VERSION, "sp": "r", "st": times[0], "se": times[1], "spr": "https", "sr": "b"}
    return urllib.parse.urlencode({**query, **texts, "sig": base64.b64encode(digest).decode()})


@contextlib.contextmanager
def open_folder(address: str, run: RunFacts) -> Iterator[FileStore]:
    """The folder at az://ACCOUNT/CONTAINER/PREFIX."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(f"{address!a} is not the address of a folder in a container", hint=f"write {STORAGE.form}")
    with _service(run, f"{found['account']}.blob.core.windows.net") as service:
        yield _Container(service, found["container"], (found["prefix"] or "").strip("/"))


class _Container:
    """A folder in a container."""

    def __init__(self, service: BlobServiceClient, name: str, prefix: str) -> None:
        self._service = service
        self._name = name
        self._prefix = f"{prefix}/" if prefix else ""

    def _blob(self, path: str) -> BlobClient:
        return self._service.get_blob_client(self._name, f"{self._prefix}{path}")

    def find(self, path: str) -> StoredFile | None:
        from azure.core.exceptions import ResourceNotFoundError

        blob = self._blob(path)
        with _explained(f"looking for {blob.url}", blob.url, "Reader"):
            try:
                found = blob.get_blob_properties()
            except ResourceNotFoundError:
                return None
        return StoredFile(found.size, (found.metadata or {}).get("sha256", ""))

    def put(self, path: str, file: Path, sha256: str) -> None:
        blob = self._blob(path)
        with _explained(f"writing {blob.url}", blob.url, "Contributor"), file.open("rb") as opened:
            # The service compares the digest of each block, and keeps none of the whole blob.
            blob.upload_blob(
                opened, length=file.stat().st_size, overwrite=True, metadata={"sha256": sha256}, validate_content=True
            )

    def read(self, path: str, limit: int) -> tuple[bytes, str] | None:
        from azure.core.exceptions import ResourceNotFoundError

        blob = self._blob(path)
        with _explained(f"reading {blob.url}", blob.url, "Reader"):
            try:
                download = blob.download_blob(max_concurrency=1)
            except ResourceNotFoundError:
                return None
            if download.size > limit:
                raise RefusedError(f"{blob.url} is larger than {limit} bytes")
            return download.readall(), str(download.properties.etag)

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        from azure.core import MatchConditions
        from azure.core.exceptions import ResourceExistsError, ResourceModifiedError

        condition: dict[str, Any] = (
            {"etag": tag, "match_condition": MatchConditions.IfNotModified, "overwrite": True} if tag else {}
        )
        blob = self._blob(path)
        with _explained(f"writing {blob.url}", blob.url, "Contributor"):
            try:
                blob.upload_blob(data, **condition)
            except (ResourceExistsError, ResourceModifiedError):
                return False
        return True


def _reject_other_answers(response: Any) -> None:  # noqa: ANN401 - the SDK's
    """Reject an answer about a blob that is not from the service: a proxy may answer anything with status 200."""
    answer = response.http_response
    is_of_blob = answer.request.method != "POST"
    if is_of_blob and answer.status_code < 400 and _REQUEST_ID not in answer.headers:
        raise NotAzureError(answer, answer.headers.get("Content-Type") or "no content", "an answer of Blob Storage")


@contextlib.contextmanager
def _service(run: RunFacts, host: str) -> Iterator[BlobServiceClient]:
    from azure.storage.blob import BlobServiceClient

    with (
        explain_errors("signing in to Azure", RefusedError),
        credential_for(run.environ, Auth()) as credential,
        BlobServiceClient(
            f"https://{host}",
            credential,
            api_version=_VERSION,
            max_block_size=_BLOCK_BYTES,
            connection_timeout=20,
            read_timeout=120,
            raw_response_hook=_reject_other_answers,
        ) as service,
    ):
        yield service


@contextlib.contextmanager
def _explained(doing: str, url: str, role: str) -> Iterator[None]:
    """Turn errors of the SDK into RefusedError. `role` is what a request without rights needs."""
    from azure.core.exceptions import HttpResponseError

    with explain_errors(doing, RefusedError):
        try:
            yield
        except HttpResponseError as error:
            code, headers = getattr(error, "error_code", None), getattr(error.response, "headers", {})
            if _REQUEST_ID not in headers or code is None:
                raise
            hint = "run it again when the cause is gone"
            if error.status_code in (401, 403):
                hint = f"give these credentials the role Storage Blob Data {role}, then run it again"
            raise RefusedError(
                f"{url}: Azure rejects the request: {getattr(code, 'value', code)}",
                hint=hint,
                details=(f"request id: {headers[_REQUEST_ID]}",),
            ) from error


STORAGE: Final = Storage(
    scheme="az", form="az://ACCOUNT/CONTAINER/FOLDER", is_host=is_host, signer=Signer, open=open_folder
)
