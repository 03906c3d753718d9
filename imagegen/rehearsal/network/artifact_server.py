"""Answers for the hosts of artifacts: it has URLs with their bytes, and redirects."""

from __future__ import annotations

import hashlib
import re
import urllib.parse
from typing import TYPE_CHECKING

from imagegen.fetch.published import offered_digests
from imagegen.rehearsal.network.messages import Request, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.rehearsal.network.private_files import Admit

# Old enough for every quarantine.
_PUBLISHED = "Wed, 01 Jan 2020 00:00:00 GMT"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


class ArtifactServer:
    """Answers HEAD, GET and range requests. It compares the query only if the URL of the artifact has one.

    `admit` has, by the names of hosts with private files, what decides whether a request may have one."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        digests: Mapping[str, bytes] | None = None,
        redirects: Mapping[str, str] | None = None,
        admit: Mapping[str, Admit] | None = None,
    ) -> None:
        self._files = {**files, **(digests or {})}
        # imagegen asks whether a server has a digest beside a file.
        self._absent = {address for url in files for address in offered_digests(url)} - self._files.keys()
        self._redirects = dict(redirects or {})
        self._admit = dict(admit or {})
        for url in (*self._files, *self._redirects):
            if urllib.parse.urlsplit(url).scheme != "https":
                raise ValueError(f"not an https URL: {url}")

    @property
    def hosts(self) -> frozenset[str]:
        """The names of the hosts."""
        return frozenset(urllib.parse.urlsplit(url).hostname or "" for url in (*self._files, *self._redirects))

    def __call__(self, request: Request) -> Response:
        full_url = f"https://{request.host}{request.target}"
        bare_url = f"https://{request.host}{request.path}"
        if request.host in self._admit:
            if refusal := self._admit[request.host](request):
                return refusal
        elif "authorization" in request.headers:
            return Response(400, fault=f"{request.host} received credentials that it did not ask for")
        if request.method not in ("GET", "HEAD"):
            return Response(405, fault=f"unexpected download request {request.method} {bare_url}")
        for url in (full_url, bare_url):
            if url in self._redirects:
                return Response(302, headers=(("Location", self._redirects[url]),))
            if url in self._files:
                return _serve_file(request, self._files[url])
        fault = "" if bare_url in self._absent else f"unexpected download {bare_url}"
        return Response(404, b"not found\n", fault=fault)


def _serve_file(request: Request, data: bytes) -> Response:
    etag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = (
        *(("Content-Type", "application/octet-stream"), ("Accept-Ranges", "bytes")),
        *(("ETag", etag), ("Last-Modified", _PUBLISHED)),
    )
    byte_range = _RANGE.match(request.headers.get("range", ""))
    # If-Range: if the file has changed, the client needs the whole file.
    if byte_range is None or byte_range[0] == "bytes=-" or request.headers.get("if-range", etag) != etag:
        return Response(200, data, headers)
    first, last = _range_bounds(byte_range[1], byte_range[2], len(data))
    if first > last:
        return Response(416, b"", (*headers, ("Content-Range", f"bytes */{len(data)}")))
    return Response(206, data[first : last + 1], (*headers, ("Content-Range", f"bytes {first}-{last}/{len(data)}")))


def _range_bounds(first: str, last: str, size: int) -> tuple[int, int]:
    if not first:
        return max(0, size - int(last)), size - 1
    return int(first), min(int(last), size - 1) if last else size - 1
