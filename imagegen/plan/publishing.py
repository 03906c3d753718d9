"""What the catalogue knows of how a project publishes: where the digest of an artifact is, and when a version came."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from imagegen.artifacts.request import PublishedDigest
from imagegen.catalog.facts import JsonObject, numbers, table

if TYPE_CHECKING:
    from imagegen.artifacts.request import ArtifactRequest


def with_publishing(request: ArtifactRequest) -> ArtifactRequest:
    """The request with the address of its published digest, and the day of its release.

    A mirror may lack the digest."""
    if request.own:
        return request
    return dataclasses.replace(request, digest=_digest_of(request), released=_release_of(request))


def _digest_of(request: ArtifactRequest) -> PublishedDigest | None:
    for row in table("publishing")["digests"].values():
        version = _version(row, request.published)
        if version and numbers(version) >= numbers(row["since"]):
            folder = request.url.rpartition("/")[0]
            url = row["digest"].replace("{url}", request.url).replace("{folder}", folder)
            return PublishedDigest(url, required=request.url == request.published)
    return None


def _release_of(request: ArtifactRequest) -> str:
    for row in table("publishing")["releases"].values():
        if version := _version(row, request.published):
            known = table(row["table"])[row["rows"]]
            # The rows of some tables are minors, whose day is that of their first version.
            first = version.removesuffix(".0") if version.count(".") == 2 else version
            released = known.get(version, known.get(first) if first != version else None)
            return str(released["released"]) if released else ""
    return ""


def _version(row: JsonObject, url: str) -> str:
    """The version in the URL, if the row is about it."""
    before, _, after = row["address"].partition("{version}")
    match = re.fullmatch(f"{re.escape(before)}([0-9][^/]*){re.escape(after)}.*", url)
    return match[1] if match else ""
