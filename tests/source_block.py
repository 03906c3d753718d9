"""The source block of a rendered tree as Packer's plugin sees it: values instead of references, dynamic blocks made."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any

import hcl2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONDITIONAL = re.compile(r"(\S+)(?: (==|!=) null)? \? (.+) : (.+)")
NULL = "null"


@functools.cache
def parse_hcl(text: str) -> Mapping[str, Any]:
    """HCL as data. Most settings are in a tree's variables, so that many trees have the same HCL."""
    return hcl2.loads(text)


def source_attributes(text: str, cloud: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Each attribute by its path: a value as JSON where the tree decides it, and otherwise the expression.

    `null` is a value here; the plugin takes it as not written.
    """
    document = parse_hcl(text)
    own = {name: said for block in document.get("locals", []) for name, said in block.items()}
    (blocks,) = document["source"]
    (named,) = _named(blocks).values()
    evaluation = _Evaluation(cloud, values, own)
    return dict(evaluation.attributes(named['"image"']))


def _named(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what the parser adds."""
    return {name: said for name, said in body.items() if not name.startswith("__")}


class _Evaluation:
    """Just as much of HCL as the templates decide by: whether a value of the tree's own variable is null."""

    def __init__(self, cloud: str, values: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        self._variable = f"var.{cloud}."
        self._values = values
        self._locals = own

    def attributes(self, body: Mapping[str, Any], under: str = "") -> Iterator[tuple[str, str]]:
        for name, said in _named(body).items():
            if name == "dynamic":
                for block in said:
                    yield from self._made(block, under)
            elif isinstance(said, list) and said and isinstance(said[0], dict):
                (block,) = said
                yield from self.attributes(block, f"{under}{name}.")
            else:
                yield f"{under}{name}", self.value(said)

    def _made(self, block: Mapping[str, Any], under: str) -> Iterator[tuple[str, str]]:
        ((quoted, body),) = _named(block).items()
        name = quoted.strip('"')
        if self.value(body["for_each"]) != "[]":
            (content,) = body["content"]
            yield from self.attributes(content, f"{under}{name}.")

    def value(self, said: object) -> str:
        if not isinstance(said, str):
            return json.dumps(said)
        expression = said.removeprefix("${").removesuffix("}") if said.startswith("${") else said
        if found := _CONDITIONAL.fullmatch(expression):
            subject, comparison, yes, no = found.groups()
            decided = self._decided(subject, comparison)
            return expression if decided is None else self.value(yes if decided else no)
        key = expression.removeprefix(self._variable)
        return json.dumps(self._values[key]) if key != expression and key.isidentifier() else expression

    def _decided(self, subject: str, comparison: str | None) -> bool | None:
        """The outcome of a condition; None where something else than the tree decides."""
        if subject.startswith("local.") and not comparison:
            said = str(self._locals[subject.removeprefix("local.")]).removeprefix("${").removesuffix("}")
            subject, comparison, _ = said.split(" ")
        if not subject.startswith(self._variable) or not comparison:
            return None
        return (self._values[subject.removeprefix(self._variable)] is None) == (comparison == "==")
