"""Whether a request for an object is presigned: its signature is computed again from the request.

https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
import urllib.parse
from collections.abc import Mapping
from typing import Final

from imagegen.rehearsal.network.messages import Request

_SIGNATURE: Final = "X-Amz-Signature"
_REQUIRED: Final = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders")
_SCOPE: Final = re.compile(r"(?P<key>[A-Z0-9]+)/(?P<scope>[0-9]{8}/(?P<region>[a-z0-9-]+)/s3/aws4_request)")
_HOST: Final = re.compile(r".*s3[a-z-]*(?:\.dualstack)?[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com")
_LONGEST_S: Final = 604_800


def find_fault(request: Request, keys: Mapping[str, str], now: datetime.datetime) -> str:
    """What is wrong with the signature; empty if it is valid. `keys` are the secret keys by their ids."""
    query = request.query
    if missing := [name for name in (*_REQUIRED, _SIGNATURE) if name not in query]:
        return f"the query has no {missing[0]}"
    scope = _SCOPE.fullmatch(query["X-Amz-Credential"])
    if scope is None or scope["key"] not in keys:
        return "InvalidAccessKeyId"
    place = _HOST.fullmatch(request.host)
    if scope["region"] != (place["region"] if place else "us-east-1"):
        return "AuthorizationHeaderMalformed"
    began = datetime.datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    lasts_s = int(query["X-Amz-Expires"])
    if not 0 < lasts_s <= _LONGEST_S:
        return "AuthorizationQueryParametersError"
    if not began - datetime.timedelta(minutes=15) <= now <= began + datetime.timedelta(seconds=lasts_s):
        return "AccessDenied: Request has expired"
    expected = _signature(request, scope["scope"], keys[scope["key"]])
    return "" if hmac.compare_digest(expected, query[_SIGNATURE]) else "SignatureDoesNotMatch"


def _signature(request: Request, scope: str, secret: str) -> str:
    pairs = sorted(pair for pair in request.target.partition("?")[2].split("&") if not pair.startswith(_SIGNATURE))
    path = urllib.parse.quote(urllib.parse.unquote(request.path), safe="/-._~")
    canonical = "\n".join(["GET", path, "&".join(pairs), f"host:{request.host}\n", "host", "UNSIGNED-PAYLOAD"])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", request.query["X-Amz-Date"], scope, digest])
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()
