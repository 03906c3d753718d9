"""The page of a web filter that answers instead of the cloud."""

from __future__ import annotations

from typing import Final

from imagegen.rehearsal.network.messages import Response

BLOCKED_PAGE: Final = Response(
    403,
    b"<!DOCTYPE html>\n<html><head><title>Access denied</title></head>"
    b"<body><h1>Access denied</h1><p>This address is blocked by your organisation's web filter.</p></body></html>\n",
    (("Content-Type", "text/html; charset=utf-8"),),
)
