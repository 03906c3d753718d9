"""One download that a config or the catalogue asks for, and how its URL may be shown. Pure."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.resources.model import ArtifactForm


@dataclasses.dataclass(frozen=True)
class ArtifactRequest:
    """Where an artifact is to come from, and what the operator says about its bytes."""

    name: str
    url: str
    sha256: str | None
    """The digest that the operator asked for; None leaves it to the first download."""
    form: ArtifactForm
    """What the kind of resource that uses it needs. An archive's files are pinned one by one."""
    override: str
    """The config's key that replaces the URL, for hints."""
    published: str
    """The public URL, whatever override and mirror say: it names the release."""


def shown_url(url: str) -> str:
    """The URL without what may be a secret in it: its query, its fragment and its user."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "a URL that cannot be read"
    host = parts.hostname or ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"
