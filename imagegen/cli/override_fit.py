"""Finds the overrides that a download fits, by the names of the files in it. Reads the steps."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from imagegen.catalog.facts import table
from imagegen.fetch.request import is_archive
from imagegen.inspect.members import is_program
from imagegen.plan import loading

if TYPE_CHECKING:
    from imagegen.steps.model import ArtifactMeta, Step

_ITEM: Final = re.compile(r"\{\{\s*item\s*\}\}")
_LITERALS: Final = re.compile(r"\[[^\]]*\]")
# The facts that give the items of a list, with where a network plugin's row of the catalogue has them.
_FACTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterable[str]]]] = {
    "facts.cni_programs": lambda row: (name for names in row.get("programs", {}).values() for name in names),
    "facts.cni_archive": lambda row: (row.get("archive") or {}).get("programs", ()),
}


@dataclasses.dataclass
class _Wanted:
    """What an artifact must have: one name of each set of `all`; without any, one of `some`. In lower case."""

    all: list[set[str]] = dataclasses.field(default_factory=list)
    some: set[str] = dataclasses.field(default_factory=set)

    def fits(self, names: set[str]) -> bool:
        return all(one & names for one in self.all) if self.all else bool(self.some & names)


def find_overrides(names: Iterable[str], url: str, *, product: str = "") -> list[str]:
    """The overrides that a download fits which has files with these names, or is the package of this product."""
    have = {name.lower() for name in names}
    judged = [
        (meta, _wanted(step, artifact, meta).fits(have) or _is_package_of(product, step, artifact))
        for step in loading.load_steps().values()
        for artifact, meta in step.meta.artifacts.items()
    ]
    single = {meta.file_override if meta.base else meta.override for meta, fits in judged if fits}
    whole = set(_fitting_bases(judged)) if is_archive(url) else set()
    covered = {meta.file_override for meta, _ in judged if meta.override in whole}
    return [*sorted(whole), *sorted(name for name in single - covered if name)]


def find_missing(names: Iterable[str], base: str) -> Iterator[tuple[str, str, bool]]:
    """The programs of a base URL that an archive with these files lacks: each with the override that brings it, and
    whether every config needs it."""
    have = {name.lower() for name in names}
    for step in loading.load_steps().values():
        for meta in step.meta.artifacts.values():
            name = _name(str(meta.path))
            if meta.base and meta.override == base and meta.file_override and name not in have:
                yield name, meta.file_override, not step.meta.when


def _fitting_bases(judged: Sequence[tuple[ArtifactMeta, bool]]) -> Iterator[str]:
    """The base URLs that an archive fits: it has several of their files, or all if each has no override of its own."""
    bases: dict[str, list[tuple[ArtifactMeta, bool]]] = {}
    for meta, fits in judged:
        if meta.base and meta.override and is_program(str(meta.path)):
            bases.setdefault(meta.override, []).append((meta, fits))
    for base, files in bases.items():
        count = sum(fits for _, fits in files)
        if count == len(files) or (count > 1 and any(meta.file_override for meta, _ in files)):
            yield base


def _resources(step: Step, artifact: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The declared resources of an artifact: the kind, the fields, and the list of which each item is one."""
    for entry in step.resources.data if isinstance(step.resources.data, list) else ():
        for kind, fields in entry.items():
            if isinstance(fields, dict) and fields.get("artifact") == artifact:
                yield kind, fields, str(entry.get("each", ""))


def _is_package_of(product: str, step: Step, artifact: str) -> bool:
    """Whether the product is that of an artifact which is a package: the name of the artifact is part of its name."""
    return artifact in product.lower() and any(kind == "package" for kind, _, _ in _resources(step, artifact))


def _wanted(step: Step, artifact: str, meta: ArtifactMeta) -> _Wanted:
    wanted = _Wanted()
    if meta.base:
        wanted.all += [{_name(str(meta.path))}] if is_program(str(meta.path)) else []
        return wanted
    for kind, fields, each in _resources(step, artifact):
        if kind == "archive":
            wanted.all += [{_name(path)} for path in fields.get("expect", ())]
        if kind not in ("extract", "file"):
            continue
        # The name in the published archive, or that on the machine.
        names = {_name(str(fields.get(key, fields["path"]))) for key in ("member", "path")}
        if any("{{" in name for name in names):
            wanted.some |= {_ITEM.sub(item.lower(), name) for name in names for item in _items(each)}
        else:
            wanted.all.append(names)
    return wanted


def _items(each: str) -> Iterator[str]:
    """The items that a list may have."""
    for literal in _LITERALS.findall(each):
        yield from map(str, ast.literal_eval(literal))
    for fact, read in _FACTS.items():
        for row in table("cni")["plugins"].values() if fact in each else ():
            yield from read(row)


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1].lower()
