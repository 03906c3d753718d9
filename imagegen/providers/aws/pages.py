"""Answers that are not from AWS: the page of a company's proxy or filter, or of a hotel's portal.

The SDK cannot parse most of them, and takes one that happens to be well-formed for an answer without any images.
"""

from __future__ import annotations

import functools
import json
import re
import urllib.parse
from typing import TYPE_CHECKING, TypedDict
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from botocore.client import BaseClient

_HTML = re.compile(rb"\s*(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Answer(TypedDict):
    body: bytes
    status_code: int


class PageError(Exception):
    """Somebody else answered in AWS' place."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


def refuse_pages(client: BaseClient) -> None:
    """Make a client tell who answered what, where the answer is not of the form in which its service answers."""
    host = urllib.parse.urlsplit(client.meta.endpoint_url).hostname or client.meta.endpoint_url
    is_json = "json" in client.meta.service_model.resolved_protocol
    client.meta.events.register("before-parse", functools.partial(_check_answer, host, is_json))


def _check_answer(host: str, is_json: bool, response_dict: _Answer, **_: object) -> None:
    body = response_dict["body"]
    found = _other_than_json(body) if is_json else _other_than_xml(body)
    if not found:
        return
    status = response_dict["status_code"]
    message = f"{host} answered {status} with {found}"
    if status < 500:
        raise PageError(f"{message}: a proxy or filter stands between", host)
    # It may be AWS' own front, and passes. The SDK tries an error of the server again, and parses it first.
    text = f"<Response><Errors><Error><Message>{escape(message)}</Message></Error></Errors></Response>"
    response_dict["body"] = json.dumps({"__type": "", "message": message}).encode() if is_json else text.encode()


def _other_than_xml(body: bytes) -> str:
    text = body.removeprefix(_BYTE_ORDER_MARK).lstrip()
    return _nothing_or_page(text) or ("" if text.startswith(b"<") else "something that is not XML")


def _other_than_json(body: bytes) -> str:
    if found := _nothing_or_page(body.removeprefix(_BYTE_ORDER_MARK).lstrip()):
        return found
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "something that is not JSON"
    return "" if isinstance(answer, dict) else "something that is not a JSON object"


def _nothing_or_page(text: bytes) -> str:
    if not text:
        return "an empty body"
    return "an HTML page" if _HTML.match(text) else ""
