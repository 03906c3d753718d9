"""Finds the key that replaces a variable of image-builder. Pure."""

import dataclasses

from imagegen.catalog.facts import table


@dataclasses.dataclass(frozen=True)
class Replacement:
    """What to write instead of a variable of image-builder."""

    key: str | None
    """The key of the config with the same meaning."""
    note: str | None
    """How the values differ, or what to do if there is no key."""


def replacements() -> dict[str, Replacement]:
    """The replacement of every variable, by its name."""
    data = table("image-builder")
    with_key = {name: Replacement(row["key"], row["note"]) for name, row in data["variables"].items()}
    groups = data["without_key"].values()
    return with_key | {name: Replacement(None, row["note"]) for row in groups for name in row["variables"]}


def hint_for(name: str) -> str | None:
    """The hint for a variable; None if image-builder has no such variable."""
    found = replacements().get(name)
    if found is None:
        return None
    if found.key is None:
        return f"imagegen has no key for image-builder's {name}: {found.note}"
    return f"image-builder's {name} is {found.key} here" + (f": {found.note}" if found.note else "")
