"""A part of the config's JSON Schema in; the same with what an editor says of it: descriptions, and words for patterns.

`patternErrorMessage` is no keyword of JSON Schema. yaml-language-server and VS Code show it where a pattern does not
match; other validators pass it over. A strict ajv takes it when it is told so: `keywords: ["patternErrorMessage"]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

MESSAGE = "patternErrorMessage"


def describe_sections(node: Schema, definitions: Mapping[str, Schema]) -> None:
    """Give each key its description back where it is the same as its section's: the generator leaves it out then."""
    for value in node.get("properties", {}).values():
        if "$ref" in value and "description" not in value:
            value["description"] = definitions[value["$ref"].rpartition("/")[2]]["description"]


def explain_patterns(node: Schema) -> None:
    """Say beside each pattern what a right value is: what `imagegen validate` says of it."""
    for value in node.get("properties", {}).values():
        _explain(value, value["description"], (value.get("examples") or [None])[0])
        # Keys of free choice that are known have words of their own.
        explain_patterns(value)


def _explain(node: object, description: str, example: object) -> None:
    if not isinstance(node, dict):
        return
    if "pattern" in node:
        node[MESSAGE] = _message("value", description, example)
    for union in ("anyOf", "oneOf"):
        for member in node.get(union, ()):
            _explain(member, description, example)
    if isinstance(example, list):
        _explain(node.get("items"), description, example[0])
    if isinstance(example, dict):
        name, value = next(iter(example.items()))
        _explain(node.get("additionalProperties"), description, value)
        if "pattern" in node.get("propertyNames", {}):
            node["propertyNames"][MESSAGE] = _message("name", description, name)


def _message(what: str, description: str, example: object) -> str:
    shown = f" For example: {example}" if isinstance(example, str) else ""
    return f"This {what} is not valid. {description}{shown}"
