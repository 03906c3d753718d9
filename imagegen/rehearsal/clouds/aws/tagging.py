"""The tags that a request asks for on what it makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPECIFICATION = re.compile(r"TagSpecification\.(\d+)\.(ResourceType|Tag\.(\d+)\.(Key|Value))\Z")


def tag_specifications(form: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The tags of a request by the type of resource they are for."""
    kinds: dict[str, str] = {}
    pairs: dict[tuple[str, str], dict[str, str]] = {}
    for field, value in form.items():
        match = _SPECIFICATION.match(field)
        if match is None:
            continue
        if match[2] == "ResourceType":
            kinds[match[1]] = value
        else:
            pairs.setdefault((match[1], match[3]), {})[match[4]] = value
    tags: dict[str, dict[str, str]] = {}
    for (specification, _), pair in pairs.items():
        tags.setdefault(kinds.get(specification, ""), {})[pair["Key"]] = pair.get("Value", "")
    return tags


def without_tag_specifications(form: Mapping[str, str], kind: str) -> dict[str, str]:
    """The form without the tags for one type of resource; moto fails on a snapshot's."""
    numbers = {
        match[1]
        for field, value in form.items()
        if (match := _SPECIFICATION.match(field)) is not None and value == kind
    }
    return {
        field: value
        for field, value in form.items()
        if not ((match := _SPECIFICATION.match(field)) is not None and match[1] in numbers)
    }
