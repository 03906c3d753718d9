"""S3: presigned addresses of objects, and a folder in a bucket.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import functools
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from imagegen.base.errors import ConfigError, RefusedError, VerificationError
from imagegen.providers import RunFacts
from imagegen.providers.aws.client import session_for
from imagegen.providers.aws.faults import error_code, explain_errors
from imagegen.providers.aws.settings import Auth
from imagegen.providers.storage import FileStore, Storage, StoredFile

# Virtual-hosted and path-style, with the older dash, dual-stack, FIPS and China.
_HOST: Final = re.compile(
    r"([a-z0-9][a-z0-9.-]*\.)?s3(-fips)?(\.dualstack)?([.-](?P<region>[a-z]{2}(-[a-z]+)+-[0-9]))?\.amazonaws\.com(\.cn)?"
)
_GLOBAL_REGION: Final = "us-east-1"
# The maximum of X-Amz-Expires.
_LONGEST_S: Final = 7 * 24 * 3600
_ADDRESS: Final = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>[!-~]*))?")
_CONFLICTS: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MISSING: Final = frozenset({"NoSuchKey", "404"})
_HINT: Final = "use credentials that last longer, such as a role whose sessions may last 12 hours, or query_env"


def is_host(host: str) -> bool:
    """Whether it is a host of S3."""
    return _HOST.fullmatch(host) is not None


def sign(run: RunFacts, urls: Sequence[str], valid_s: float) -> dict[str, str]:
    """Presign GetObject for each URL. Makes no request, unless the credentials need one."""
    if valid_s > _LONGEST_S:
        raise RefusedError(
            f"an address of S3 is valid for at most 7 days, but this build may download for {valid_s / 86400:.1f} days",
            hint="lower `timeouts`",
        )
    hosts = [urllib.parse.urlsplit(url).hostname or "" for url in urls]
    signed = {}
    with explain_errors(f"signing in for downloads from {hosts[0]}", RefusedError, service="s3"):
        for url, host in zip(urls, hosts, strict=True):
            found = _HOST.fullmatch(host)
            region = (found and found["region"]) or _GLOBAL_REGION
            signed[url] = _presign(url, region, valid_s, _credentials(host, region, valid_s, run.environ))
    return signed


def _presign(url: str, region: str, valid_s: float, credentials: Any) -> str:  # noqa: ANN401 - frozen, the SDK's
    from botocore.auth import S3SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    parts = urllib.parse.urlsplit(url)
    # S3 compares the signature with this spelling of the path.
    path = urllib.parse.quote(urllib.parse.unquote(parts.path), safe="/-._~")
    request = AWSRequest("GET", urllib.parse.urlunsplit(parts._replace(path=path)))
    S3SigV4QueryAuth(credentials, "s3", region, expires=int(valid_s)).add_auth(request)
    return str(request.url)


def _credentials(host: str, region: str, valid_s: float, environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - as above
    """The credentials of the usual chain. An address ends with the session of its credentials."""
    from botocore.credentials import RefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    found = session_for(environ, Auth(), region).get_credentials()
    if found is None:
        raise NoCredentialsError
    frozen = found.get_frozen_credentials()
    ends = _stated_end(environ) if found.method == "explicit" and frozen.token else None
    left_s = (ends - datetime.datetime.now(datetime.UTC)).total_seconds() if ends else valid_s
    if left_s < valid_s or (isinstance(found, RefreshableCredentials) and found.refresh_needed(int(valid_s))):
        raise RefusedError(
            f"AWS ends these credentials too early: an address of {host} must be valid for {valid_s / 3600:.1f} hours",
            hint=_HINT,
        )
    return frozen


def _stated_end(environ: Mapping[str, str]) -> datetime.datetime | None:
    """The end of the session in the variables, as the command line tool of AWS writes it beside them."""
    try:
        end = datetime.datetime.fromisoformat(environ.get("AWS_CREDENTIAL_EXPIRATION", ""))
    except ValueError:
        return None
    return end if end.tzinfo else end.replace(tzinfo=datetime.UTC)


@contextlib.contextmanager
def open_folder(address: str, run: RunFacts) -> Iterator[FileStore]:
    """The folder at s3://BUCKET/PREFIX."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise ConfigError(f"{address!a} is not the address of a folder in a bucket", hint=f"write {STORAGE.form}")
    region = run.environ.get("AWS_REGION") or run.environ.get("AWS_DEFAULT_REGION") or _GLOBAL_REGION
    with explain_errors(f"opening {address}", RefusedError, service="s3"):
        # Not a client of `service_clients`, whose clients expect XML in every answer.
        client = session_for(run.environ, Auth(), region).client("s3")
    with contextlib.closing(client):
        yield _Bucket(client, found["bucket"], (found["prefix"] or "").strip("/"))


class _Bucket:
    """A folder in a bucket."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:  # noqa: ANN401 - each service has a class of its own
        self._client = client
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def _at(self, path: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{path}"}

    def _explain(self, doing: str, path: str) -> contextlib.AbstractContextManager[None]:
        return explain_errors(f"{doing} s3://{self._bucket}/{self._prefix}{path}", RefusedError, service="s3")

    def find(self, path: str) -> StoredFile | None:
        with self._explain("looking for", path):
            found = self._call(_MISSING, "head_object", **self._at(path), ChecksumMode="ENABLED")
        if found is None:
            return None
        # Of an object in parts it is the digest of digests, which ends with a number.
        checksum = str(found.get("ChecksumSHA256", ""))
        return StoredFile(int(found["ContentLength"]), "" if "-" in checksum else _hexadecimal(checksum))

    def put(self, path: str, file: Path, sha256: str) -> None:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        with self._explain("writing", path), file.open("rb") as opened:
            # In one request, because S3 compares only then the digest of the whole object. Its limit is 5 GB.
            answer = self._client.put_object(
                **self._at(path), Body=opened, ChecksumAlgorithm="SHA256", ChecksumSHA256=checksum
            )
        if answer.get("ChecksumSHA256") != checksum:
            raise VerificationError(
                f"s3://{self._bucket}/{self._prefix}{path} was not verified: the answer has no sha256, or another one",
                hint="check that the address leads to S3, and not to a proxy",
            )

    def read(self, path: str, limit: int) -> tuple[bytes, str] | None:
        with self._explain("reading", path):
            found = self._call(_MISSING, "get_object", **self._at(path))
            if found is None:
                return None
            with contextlib.closing(found["Body"]) as body:
                data = body.read(limit + 1)
        if len(data) > limit:
            raise RefusedError(f"s3://{self._bucket}/{self._prefix}{path} is larger than {limit} bytes")
        return data, str(found["ETag"])

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        condition = {"IfMatch": tag} if tag else {"IfNoneMatch": "*"}
        with self._explain("writing", path):
            return self._call(_CONFLICTS, "put_object", **self._at(path), Body=data, **condition) is not None

    def _call(self, expected: frozenset[str], name: str, **arguments: object) -> dict[str, Any] | None:
        """The answer; None for an error with one of these codes."""
        from botocore.exceptions import ClientError

        try:
            answer: dict[str, Any] = getattr(self._client, name)(**arguments)
        except ClientError as error:
            if error_code(error) not in expected:
                raise
            return None
        return answer


def _hexadecimal(checksum: str) -> str:
    try:
        return base64.b64decode(checksum, validate=True).hex()
    except ValueError:
        return ""


STORAGE: Final = Storage(
    scheme="s3",
    form="s3://BUCKET/FOLDER",
    is_host=is_host,
    signer=lambda run: functools.partial(sign, run),
    open=open_folder,
)
