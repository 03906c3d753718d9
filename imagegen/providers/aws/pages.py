"""Rejects answers that are not from AWS, for example the web page of a proxy, a web filter or a captive portal.

The SDK cannot parse most of them, and treats a well-formed one as an empty result.
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
    """Another host answered instead of AWS."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


def reject_web_pages(client: BaseClient) -> None:
    """Make a client raise PageError for answers that do not have the format of its service."""
    host = urllib.parse.urlsplit(client.meta.endpoint_url).hostname or client.meta.endpoint_url
    is_json = "json" in client.meta.service_model.resolved_protocol
    client.meta.events.register("before-parse", functools.partial(_check_answer, host, is_json))


def _check_answer(host: str, is_json: bool, response_dict: _Answer, **_: object) -> None:
    body = response_dict["body"]
    content = _other_than_json(body) if is_json else _other_than_xml(body)
    if not content:
        return
    status = response_dict["status_code"]
    message = f"{host} answered {status} with {content}"
    if status < 500:
        raise PageError(f"{message}: a proxy or web filter answered instead of AWS", host)
    # A gateway of AWS may have answered. The SDK retries server errors, but parses the body first.
    text = f"<Response><Errors><Error><Message>{escape(message)}</Message></Error></Errors></Response>"
    response_dict["body"] = json.dumps({"__type": "", "message": message}).encode() if is_json else text.encode()


def _other_than_xml(body: bytes) -> str:
    text = body.removeprefix(_BYTE_ORDER_MARK).lstrip()
    return _nothing_or_page(text) or ("" if text.startswith(b"<") else "something that is not XML")


def _other_than_json(body: bytes) -> str:
    if content := _nothing_or_page(body.removeprefix(_BYTE_ORDER_MARK).lstrip()):
        return content
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return "something that is not JSON"
    return "" if isinstance(answer, dict) else "something that is not a JSON object"


def _nothing_or_page(text: bytes) -> str:
    if not text:
        return "an empty body"
    return "an HTML page" if _HTML.match(text) else ""
