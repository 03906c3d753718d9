"""Blob Storage: user delegation keys, and whether a request for a blob has a signature (SAS) that such a key made.

https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas
"""

from __future__ import annotations

import base64
import datetime
import hmac
import re
import secrets
import urllib.parse
from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from imagegen.rehearsal.clouds.azure.login import Application

AUDIENCE: Final = "https://storage.azure.com"
_KEY_INFO: Final = re.compile(r"(?:<\?xml[^>]*>\s*)?<KeyInfo><Start>([^<]+)</Start><Expiry>([^<]+)</Expiry></KeyInfo>")
_REQUIRED: Final = (
    *("sv", "sp", "st", "se", "spr", "sr", "sig"),
    *("skoid", "sktid", "skt", "ske", "sks", "skv"),
)
_LONGEST: Final = datetime.timedelta(days=7)
_REQUEST_ID: Final = ("x-ms-request-id", "00000000-0000-0000-0000-000000000000")


class Blobs:
    """Storage accounts whose blobs are private."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._keys: dict[tuple[str, ...], bytes] = {}

    def answer(self, request: Request, audience: str) -> Response | None:
        """The answer in place of a blob; None if the request may have it."""
        if request.method == "POST" and request.query.get("comp") == "userdelegationkey":
            return self._give_key(request) if audience == AUDIENCE else _refuse(401, "InvalidAuthenticationInfo")
        if "sig" not in request.query:
            return _refuse(409, "PublicAccessNotPermitted")
        fault = self._find_fault(request)
        return _refuse(403, f"AuthenticationFailed: {fault}") if fault else None

    def _give_key(self, request: Request) -> Response:
        found = _KEY_INFO.fullmatch(request.body.decode())
        if found is None or _time(found[2]) - _time(found[1]) > _LONGEST:
            return _refuse(400, "InvalidXmlDocument")
        application = self._application
        version = request.headers.get("x-ms-version", "")
        fields = (application.object_id, application.tenant, found[1], found[2], "b", version)
        # The same request has the same key.
        self._keys.setdefault(fields, secrets.token_bytes(32))
        names = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion")
        rows = "".join(f"<{name}>{value}</{name}>" for name, value in zip(names, fields, strict=True))
        value = base64.b64encode(self._keys[fields]).decode()
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><UserDelegationKey>{rows}<Value>{value}</Value></UserDelegationKey>'
        )
        headers = (("Content-Type", "application/xml"), _REQUEST_ID)
        return Response(200, text.encode(), headers, note="blob:userdelegationkey")

    def _find_fault(self, request: Request) -> str:
        query = request.query
        if missing := [name for name in _REQUIRED if name not in query]:
            return f"{missing[0]} is required"
        key = tuple(query[name] for name in ("skoid", "sktid", "skt", "ske", "sks", "skv"))
        if key not in self._keys:
            return "the user delegation key is unknown"
        now = datetime.datetime.now(datetime.UTC)
        if not max(_time(query["st"]), _time(query["skt"])) <= now <= min(_time(query["se"]), _time(query["ske"])):
            return "the signature is not valid at this time"
        if (query["sp"], query["sr"], query["spr"]) != ("r", "b", "https"):
            return "the signature is not for reading one blob over https"
        account = request.host.partition(".")[0]
        resource = f"/blob/{account}{urllib.parse.unquote(request.path)}"
        fields = [query["sp"], query["st"], query["se"], resource, *key, "", "", "", "", query["spr"], query["sv"]]
        text = "\n".join([*fields, query["sr"], "", "", "", "", "", "", ""])
        expected = base64.b64encode(hmac.digest(self._keys[key], text.encode(), "sha256")).decode()
        return "" if hmac.compare_digest(expected, query["sig"]) else "Signature did not match."


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)


def _refuse(status: int, code: str) -> Response:
    name = code.partition(":")[0]
    text = f'<?xml version="1.0" encoding="utf-8"?><Error><Code>{name}</Code><Message>{code}</Message></Error>'
    headers = (("Content-Type", "application/xml"), ("x-ms-error-code", name), _REQUEST_ID)
    return Response(status, text.encode(), headers, note=f"blob:{code}")
