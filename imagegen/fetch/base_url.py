"""The base URL of several files, as a config writes it: a folder, a template, or one archive with all of them. Pure."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal

Form = Literal["folder", "template", "archive"]

NAME: Final = "name"
VERSION: Final = "version"
_ARCHIVES: Final = (".zip", ".tar.gz", ".tgz", ".tar")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def find_form(base: str) -> Form:
    """What a base URL is. A brace makes it a template. A folder is never named like an archive."""
    if "{" in base or "}" in base:
        return "template"
    return "archive" if is_archive(base) else "folder"


def is_archive(name: str) -> bool:
    """Whether a URL or a file name ends like an archive's."""
    return name.lower().endswith(_ARCHIVES)


def make_url(base: str, path: str, version: str | None) -> str:
    """The URL of the file that has this path in a folder. In a template, `{name}` is its name without `.exe`."""
    form = find_form(base)
    if form == "archive":
        return base
    if form == "folder":
        return f"{base.rstrip('/')}/{path}"
    values = {NAME: path.rpartition("/")[2].removesuffix(".exe"), **({VERSION: version} if version else {})}
    return fill(base, values)


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders. Unknown ones stay as they are: `find_faults` names them."""
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def find_faults(template: str, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with a template, each fault with its hint. `known` are the names of its placeholders."""
    write = " or ".join(f"{{{name}}}" for name in known)
    names = dict.fromkeys(_PLACEHOLDER.findall(template))
    for name in names:
        if name not in known:
            yield f"unknown placeholder {{{name}}}", f"write {write}"
    if stray := re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        side = "closing" if stray[0] == "{" else "opening"
        yield f'the brace "{stray[0]}" has no {side} brace', f"write {write}, and %7B or %7D for a brace of the URL"
    elif NAME in known and NAME not in names:
        yield (
            "the template has no {name}, so all files would have one URL",
            "write {name} where the name of the program is, or the URL of one archive with all of them",
        )
