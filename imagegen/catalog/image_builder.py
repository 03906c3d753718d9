"""A variable of image-builder in; what says the same here, or why nothing does, out. Pure."""

import dataclasses

from imagegen.catalog.facts import table

NAME = "image-builder"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What somebody who knows the variable should know."""

    key: str | None
    """The key of the config that says the same."""
    note: str | None
    """How the values differ, or, where there is no key, what to do instead."""


def answers() -> dict[str, Answer]:
    """Every variable, by its name."""
    data = table(NAME)
    found = {name: Answer(row["key"], row["note"]) for name, row in data["variables"].items()}
    for row in data["without_key"].values():
        found |= {name: Answer(None, row["note"]) for name in row["variables"]}
    return found


def hint_for(name: str) -> str | None:
    """What to write instead of a variable; nothing for a name that image-builder does not have."""
    answer = answers().get(name)
    if answer is None:
        return None
    if answer.key is None:
        return f"imagegen has no key for image-builder's {name}: {answer.note}"
    return f"image-builder's {name} is {answer.key} here" + (f": {answer.note}" if answer.note else "")
