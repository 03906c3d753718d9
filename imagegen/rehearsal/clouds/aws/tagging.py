"""The tags in a request for the resources that it creates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPECIFICATION = re.compile(r"TagSpecification\.(\d+)\.(ResourceType|Tag\.(\d+)\.(Key|Value))\Z")


def tag_specifications(form: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The tags in a request by the type of resource."""
    types: dict[str, str] = {}
    pairs: dict[tuple[str, str], dict[str, str]] = {}
    for field, value in form.items():
        match = _SPECIFICATION.match(field)
        if match is None:
            continue
        if match[2] == "ResourceType":
            types[match[1]] = value
        else:
            pairs.setdefault((match[1], match[3]), {})[match[4]] = value
    tags: dict[str, dict[str, str]] = {}
    for (specification, _), pair in pairs.items():
        tags.setdefault(types.get(specification, ""), {})[pair["Key"]] = pair.get("Value", "")
    return tags


def drop_tag_specifications(form: Mapping[str, str], resource_type: str) -> dict[str, str]:
    """Remove the tags for one type of resource: moto fails on those of snapshots."""
    numbers = {
        match[1]
        for field, value in form.items()
        if (match := _SPECIFICATION.match(field)) is not None and value == resource_type
    }
    return {
        field: value
        for field, value in form.items()
        if not ((match := _SPECIFICATION.match(field)) is not None and match[1] in numbers)
    }
