"""The digests that projects publish beside their files. Asks for them, and compares them with that of the bytes.

Where the catalogue says that a project publishes one, it must be there. On a mirror, and beside a URL of the config, it
counts only if the server has one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from imagegen.base.errors import ImagegenError, VerificationError
from imagegen.fetch.request import shown_url

if TYPE_CHECKING:
    from imagegen.fetch.http import Ask
    from imagegen.fetch.request import ArtifactRequest

_LONGEST: Final = 2**20
_BESIDE: Final = (".sha256", ".sha256sum")
_LISTS: Final = ("SHA256SUMS", "sha256sums.txt")
_HEX: Final = "([0-9a-fA-F]{64})"
# sha256sum, with two blanks for a text and a star for a binary file; and BSD's form.
_LINE: Final = re.compile(rf"{_HEX}[ \t]+\*?(.+)|SHA256 ?\((.+)\) ?= ?{_HEX}")


def confirm(request: ArtifactRequest, sha256: str, ask: Ask) -> list[str]:
    """The addresses of the published digests that agree. One that disagrees is an error.

    A URL with a sha256 of the config needs none: the operator has said which bytes are right."""
    if request.sha256 is not None:
        return []
    if request.own:
        return _confirm_first(request, sha256, ask, [*offered_digests(request.url)])
    if request.digest is None:
        return []
    return _confirm_first(request, sha256, ask, [request.digest.url], required=request.digest.required)


def offered_digests(url: str) -> Iterator[str]:
    """Where a server may have a digest that nobody promised."""
    folder = url.rpartition("/")[0]
    yield from (f"{url}{suffix}" for suffix in _BESIDE)
    yield from (f"{folder}/{name}" for name in _LISTS)


def _confirm_first(
    request: ArtifactRequest, sha256: str, ask: Ask, addresses: list[str], *, required: bool = False
) -> list[str]:
    name = request.url.rpartition("/")[2]
    for address in addresses:
        try:
            published, reason = _published(address, name, is_list=not address.startswith(request.url), ask=ask)
        except (OSError, ImagegenError) as error:
            if required and isinstance(error, ImagegenError):
                raise
            published, reason = None, str(error)
        if published == sha256:
            return [shown_url(address)]
        if published:
            raise VerificationError(
                f"{request.name}: {shown_url(request.url)} has sha256 {sha256}, but {shown_url(address)} says "
                f"{published}",
                hint=f"one of the two was replaced: find out which; to accept these bytes, write this sha256 beside "
                f"{request.key}",
            )
        if required:
            raise VerificationError(
                f"{request.name}: the published digest {shown_url(address)} cannot be read: {reason}",
                hint=f"try again later; without the digest, write {{url, sha256}} in {request.key}",
            )
    return []


def _published(address: str, name: str, *, is_list: bool, ask: Ask) -> tuple[str | None, str]:
    """The digest of the file, or the reason why there is none."""
    answer = ask(address, {}, "")
    if answer.status != 200:
        return None, f"the server responded with status {answer.status}"
    if len(answer.body) > _LONGEST:
        return None, f"it is larger than {_LONGEST // 2**20} MiB"
    found = find_digest(answer.body, name, is_list=is_list)
    return found, "" if found else f"it has no sha256 of {name}"


def find_digest(document: bytes, name: str, *, is_list: bool) -> str | None:
    """The sha256 that a document says of the file. None if it does not say one, or more than one.

    A document of a single file may call it by another name, or say only the digest."""
    lines = [line.strip() for line in document.decode("utf-8-sig", "replace").splitlines() if line.strip()]
    if len(lines) == 1 and not is_list and re.fullmatch(_HEX, lines[0]):
        return lines[0].lower()
    found = [(match[1] or match[4], match[2] or match[3]) for match in map(_LINE.fullmatch, lines) if match]
    if len(lines) == 1 and not is_list:
        digests = {digest.lower() for digest, _ in found}
    else:
        digests = {digest.lower() for digest, file in found if re.split(r"[/\\]", file.strip())[-1] == name}
    return digests.pop() if len(digests) == 1 else None
