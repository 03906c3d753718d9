"""The config's model in, its JSON Schema out, for editors and other tools. Pure; the same bytes every time.

It accepts whatever the model accepts, and more: what only a rule or a whole section can tell is not said here.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import GenerateJsonSchema

from imagegen.config.model import ConfigFile
from imagegen.config.schema_help import MESSAGE, Schema, describe_sections, explain_patterns
from imagegen.config.targets import LONGEST_NAME, NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILE_NAME = "imagegen.schema.json"
MODELINE = f"# yaml-language-server: $schema={FILE_NAME}"

_REF = "#/$defs/"


@dataclasses.dataclass(frozen=True)
class Known:
    """What the model itself does not know of its keys."""

    releases: Sequence[str]
    """The catalogue's Windows releases."""
    overrides: Mapping[str, str]
    """The names that artifacts answer to, and what each moves."""
    gates: Mapping[str, str]
    """kubelet's feature gates that the catalogue knows, and which Kubernetes has them."""
    notes: Mapping[str, str]
    """What is to be said of keys beside their descriptions, by their paths."""


class _Untitled(GenerateJsonSchema):
    """Without a title for each key: it would only repeat the key."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def config_schema(known: Known) -> Schema:
    """The schema of a config file."""
    whole = _renamed(ConfigFile.model_json_schema(schema_generator=_Untitled))
    definitions: dict[str, Schema] = whole.pop("$defs")
    every = (whole, *definitions.values())
    for node in every:
        describe_sections(node, definitions)
    for path, note in known.notes.items():
        _note(whole, path.split("."), note, definitions)
    for node in every:
        _tidy(node, definitions)
    definitions["Windows"]["properties"]["release"]["examples"] = list(known.releases)
    gates = definitions["Kubernetes"]["properties"]["feature_gates"]
    gates["properties"] = _described(known.gates, gates["additionalProperties"])
    message = (
        "This name is not valid. A target's name has lower-case letters, digits and single dashes. For example: prod-2"
    )
    definitions["Targets"]["propertyNames"] = {"pattern": NAME, "maxLength": LONGEST_NAME, MESSAGE: message}
    overrides = whole["properties"]["overrides"]
    overrides["properties"] = _described(known.overrides, overrides["additionalProperties"])
    overrides["additionalProperties"] = False
    for node in every:
        explain_patterns(node)
    complete = _complete(whole, definitions)
    _relax(whole, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:imagegen:config",
        "title": "imagegen config",
        "description": "One Windows Kubernetes node image: what is on it, and where it is built and published.",
        **{key: whole[key] for key in ("type", "properties", "additionalProperties")},
        "if": {"type": "object", "required": ["extends"], "properties": {"extends": True}},
        "then": True,
        "else": {"$comment": "A config that extends none names every key that has no default.", **complete},
        "$defs": definitions,
    }


def _described(names: Mapping[str, str], value: Schema) -> dict[str, Schema]:
    """Names of free choice that are known, so that an editor offers them and says what they are."""
    return {name: {"description": description, **copy.deepcopy(value)} for name, description in names.items()}


def schema_text(schema: Schema) -> str:
    """The schema as it lies beside configs."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _renamed(schema: Schema) -> Schema:
    """The same with short names for sections that several modules have: the provider's name, then the section's."""
    names = {name: _short(name) for name in schema["$defs"]}

    def renamed(node: Any) -> Any:  # noqa: ANN401 - any part of a schema
        if isinstance(node, list):
            return [renamed(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if isinstance(reference, str):
            node = {**node, "$ref": _REF + names[reference.removeprefix(_REF)]}
        return {key: renamed(value) for key, value in node.items()}

    return {**renamed(schema), "$defs": {names[name]: renamed(node) for name, node in schema["$defs"].items()}}


def _short(name: str) -> str:
    *modules, section = name.split("__")
    return f"{modules[-2].title()}{section}" if modules else section


def _note(node: Schema, path: Sequence[str], note: str, definitions: Mapping[str, Schema]) -> None:
    first, *rest = path
    for member in _members(node, definitions):
        inner = member.get("additionalProperties") if first == "*" else member.get("properties", {}).get(first)
        if not isinstance(inner, dict):
            continue
        if rest:
            _note(inner, rest, note, definitions)
        else:
            inner["description"] = f"{inner['description']} ({note})"


def _tidy(node: object, definitions: Mapping[str, Schema]) -> None:
    """Maps closed as the model closes them, and optional sections without a union: an editor then says what is wrong
    in them, and not that no member fits."""
    if isinstance(node, list):
        for item in node:
            _tidy(item, definitions)
    if not isinstance(node, dict):
        return
    if "patternProperties" in node:
        # An editor then says what is wrong with a name, and not only that it is not allowed.
        ((pattern, value),) = node.pop("patternProperties").items()
        node["propertyNames"] = {"pattern": pattern, **node.get("propertyNames", {})}
        node["additionalProperties"] = value
    if "discriminator" in node:
        _choose(node, definitions)
    match node.get("anyOf"):
        case [{"$ref": str(reference)}, {"type": "null"}]:
            del node["anyOf"]
            node["$ref"] = reference
            definitions[reference.removeprefix(_REF)]["type"] = ["object", "null"]
        case _:
            pass
    for value in node.values():
        _tidy(value, definitions)


def _choose(node: Schema, definitions: Mapping[str, Schema]) -> None:
    """A union by one of its keys: an editor then says what is wrong in the member that this key names. Where a config
    that extends another leaves the key out, nothing is said."""
    key = node.pop("discriminator")["propertyName"]
    members = {member["$ref"]: definitions[member["$ref"].removeprefix(_REF)] for member in node.pop("oneOf")}
    keys = {ref: member["properties"][key] for ref, member in members.items()}
    values = {ref: value["const"] for ref, value in keys.items()}
    described = {
        "description": " ".join({value["description"]: None for value in keys.values()}),
        "enum": list(values.values()),
    }
    node |= {"type": "object", "properties": {key: described}}
    node["allOf"] = [
        {"if": {"type": "object", "required": [key], "properties": {key: {"const": value}}}, "then": {"$ref": ref}}
        for ref, value in values.items()
    ]


def _complete(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Only what must be there, at every depth that merging reaches. A key asked of what is no section asks nothing.

    Each schema says its type and names what it requires under `properties`: strict validators ask for both.
    """
    found: Schema = {}
    parts = [part for part in _members(node, definitions) if "type" in part]
    for part in parts:
        required = part.get("required", [])
        known = part.get("properties", {})
        inner = {key: _complete(value, definitions) for key, value in known.items()}
        properties = {**dict.fromkeys(required, True), **{key: value for key, value in inner.items() if value}}
        others = part.get("additionalProperties")
        if isinstance(others, dict) and "allOf" in others:
            # What is said of other names must not reach these.
            properties = {**dict.fromkeys(known, True), **properties}
            extra = {"additionalProperties": _complete_choice(others, definitions)}
        else:
            extra = {}
        if properties:
            needed = {"required": required} if required else {}
            found = {"type": part["type"], **needed, "properties": properties, **extra}
    if found and any(part["type"] == "string" for part in parts):
        # Not a union: an editor would show its other member instead of the key's description.
        return {"if": {"type": "object"}, "then": found}
    return found


def _complete_choice(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """What must be there where a key chooses among sections: the key, and what the section requires."""
    key = dict.fromkeys(node["properties"], True)
    members = [{**member, "then": _complete(member["then"], definitions)} for member in node["allOf"]]
    return {"type": "object", "required": list(key), "properties": key, "allOf": members}


def _relax(schema: Schema, definitions: Mapping[str, Schema]) -> None:
    """Take `required` from what merges key by key. A list replaces another as a whole: its sections stay complete."""
    in_lists = {name for definition in (schema, *definitions.values()) for name in _listed(definition)}
    for name, definition in definitions.items():
        if name not in in_lists:
            definition.pop("required", None)


def _listed(node: object) -> Iterator[str]:
    """The sections that are items of lists."""
    if isinstance(node, dict):
        items = node.get("items")
        if isinstance(items, dict) and "$ref" in items:
            yield items["$ref"].removeprefix(_REF)
        for value in node.values():
            yield from _listed(value)
    elif isinstance(node, list):
        for value in node:
            yield from _listed(value)


def _members(node: Schema, definitions: Mapping[str, Schema]) -> Iterator[Schema]:
    """What a place may hold: the node, what it refers to, and the members of a union."""
    if "$ref" in node:
        yield from _members(definitions[node["$ref"].removeprefix(_REF)], definitions)
        return
    yield node
    for union in ("anyOf", "oneOf"):
        for member in node.get(union, ()):
            yield from _members(member, definitions)
