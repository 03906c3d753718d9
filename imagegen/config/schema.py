"""Makes the JSON Schema of a config from its model, for editors and other tools. Pure; the same bytes every time.

The schema accepts every config that the model accepts, and some that it rejects: only rules and whole sections can
check those.
"""

import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema

from imagegen.config.model import ConfigFile
from imagegen.config.targets import LONGEST_NAME, NAME

FILE_NAME = "imagegen.schema.json"
MODELINE = f"# yaml-language-server: $schema={FILE_NAME}"

_REF = "#/$defs/"
# Not a keyword of JSON Schema. yaml-language-server and VS Code show it if a value does not match a pattern; other
# validators ignore it. A strict ajv needs an option: `keywords: ["patternErrorMessage"]`.
_MESSAGE: Final = "patternErrorMessage"

Schema = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Known:
    """What the model does not know about its keys."""

    releases: Sequence[str]
    """The Windows releases of the catalogue."""
    overrides: Mapping[str, str]
    """The names of the overrides, with their descriptions."""
    gates: Mapping[str, str]
    """The feature gates of kubelet that the catalogue knows, with the Kubernetes versions that have them."""
    notes: Mapping[str, str]
    """Notes for keys, by their paths. They follow the descriptions."""


class _Untitled(GenerateJsonSchema):
    """Generates no title for a key: it would only repeat the key."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def config_schema(known: Known) -> Schema:
    """The schema of a config file."""
    whole = _generate()
    definitions: dict[str, Schema] = whole.pop("$defs")
    every = (whole, *definitions.values())
    for value in (value for node in every for value in node.get("properties", {}).values() if "$ref" in value):
        # The generator leaves out the description of a key that is the same as its section's.
        value.setdefault("description", definitions[value["$ref"].removeprefix(_REF)]["description"])
    for path, note in known.notes.items():
        _add_note(whole, path.split("."), note, definitions)
    for node in list(_nodes(every)):
        _tidy(node, definitions)
    definitions["Windows"]["properties"]["release"]["examples"] = list(known.releases)
    gates, overrides = definitions["Kubernetes"]["properties"]["feature_gates"], whole["properties"]["overrides"]
    gates["properties"] = _describe_names(known.gates, gates["additionalProperties"])
    overrides["properties"] = _describe_names(known.overrides, overrides["additionalProperties"])
    overrides["additionalProperties"] = False
    definitions["Targets"]["propertyNames"] = {
        "pattern": NAME,
        "maxLength": LONGEST_NAME,
        _MESSAGE: _message("name", "A target's name has lower-case letters, digits and single dashes.", "prod-2"),
    }
    for node in every:
        _explain_patterns(node)
    complete = _complete(whole, definitions)
    # A list replaces another list as a whole, so its sections stay complete. All other sections merge key by key.
    in_lists = {node["items"].get("$ref") for node in _nodes(every) if isinstance(node.get("items"), dict)}
    for name, definition in definitions.items():
        if _REF + name not in in_lists:
            definition.pop("required", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:imagegen:config",
        "title": "imagegen config",
        "description": "One Windows Kubernetes node image: what is on it, and where it is built and published.",
        **{key: whole[key] for key in ("type", "properties", "additionalProperties")},
        "if": {"type": "object", "required": ["extends"], "properties": {"extends": True}},
        "then": True,
        "else": {"$comment": "A config that extends no other config must have every required key.", **complete},
        "$defs": definitions,
    }


def schema_text(schema: Schema) -> str:
    """The schema as a JSON file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _generate() -> Schema:
    """The schema of the model. pydantic names a section that several providers have after its module: here its name
    is short, the provider's name and its own."""
    long = ConfigFile.model_json_schema(schema_generator=_Untitled)
    text = json.dumps(long)
    for name in long["$defs"]:
        *modules, section = name.split("__")
        if modules:
            text = text.replace(name, f"{modules[-2].title()}{section}")
    schema: Schema = json.loads(text)
    return schema


def _describe_names(names: Mapping[str, str], value: Schema) -> dict[str, Schema]:
    """Properties for known names in a map, so that an editor offers them with their descriptions."""
    return {name: {"description": description, **copy.deepcopy(value)} for name, description in names.items()}


def _nodes(node: object) -> Iterator[Schema]:
    """Every object in a part of a schema."""
    if isinstance(node, dict):
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ():
        yield from _nodes(inner)


def _add_note(node: Schema, path: Sequence[str], note: str, definitions: Mapping[str, Schema]) -> None:
    first, *rest = path
    for member in _members(node, definitions):
        inner = member.get("additionalProperties") if first == "*" else member.get("properties", {}).get(first)
        if isinstance(inner, dict) and rest:
            _add_note(inner, rest, note, definitions)
        elif isinstance(inner, dict):
            inner["description"] = f"{inner['description']} ({note})"


def _tidy(node: Schema, definitions: Mapping[str, Schema]) -> None:
    """Make an object of the schema easier for editors: they then say what is wrong in a section or name, and not only
    that no member of a union matches or that a name is not allowed."""
    if "patternProperties" in node:
        ((pattern, value),) = node.pop("patternProperties").items()
        node["propertyNames"] = {"pattern": pattern, **node.get("propertyNames", {})}
        node["additionalProperties"] = value
    if "discriminator" in node:
        _choose(node, definitions)
    if node.get("anyOf", [])[1:] == [{"type": "null"}] and "$ref" in node["anyOf"][0]:
        node["$ref"] = node.pop("anyOf")[0]["$ref"]
        definitions[node["$ref"].removeprefix(_REF)]["type"] = ["object", "null"]


def _choose(node: Schema, definitions: Mapping[str, Schema]) -> None:
    """Choose a union's member by one of its keys: an editor then checks only this member. A config that extends another
    may leave out the key: then no member is checked."""
    key = node.pop("discriminator")["propertyName"]
    refs = [member["$ref"] for member in node.pop("oneOf")]
    choices = {ref: definitions[ref.removeprefix(_REF)]["properties"][key] for ref in refs}
    node |= {
        "type": "object",
        "properties": {
            key: {
                "description": " ".join({choice["description"]: None for choice in choices.values()}),
                "enum": [choice["const"] for choice in choices.values()],
            }
        },
        "allOf": [
            {
                "if": {"type": "object", "required": [key], "properties": {key: {"const": choice["const"]}}},
                "then": {"$ref": ref},
            }
            for ref, choice in choices.items()
        ],
    }


def _complete(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Only what is required, at every depth at which configs merge. A value that is not a section is not checked here.

    Strict validators demand that each schema has a type and has its required names in `properties`.
    """
    found: Schema = {}
    parts = [part for part in _members(node, definitions) if "type" in part]
    for part in parts:
        required, known = part.get("required", []), part.get("properties", {})
        inner = {key: _complete(value, definitions) for key, value in known.items()}
        needed: Schema = {"required": required} if required else {}
        properties = {**dict.fromkeys(required, True), **{key: value for key, value in inner.items() if value}}
        others = part.get("additionalProperties")
        if isinstance(others, dict) and "allOf" in others:
            # Every known name is listed, so that the schema of other names does not apply to it.
            properties = {**dict.fromkeys(known, True), **properties}
            needed["additionalProperties"] = _complete_choice(others, definitions)
        if properties:
            found = {"type": part["type"], **needed, "properties": properties}
    if found and any(part["type"] == "string" for part in parts):
        # Not a union: an editor would show its other member instead of the key's description.
        return {"if": {"type": "object"}, "then": found}
    return found


def _complete_choice(node: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """What is required if a key chooses among sections: the key, and the required keys of the section."""
    return {
        "type": "object",
        "required": list(node["properties"]),
        "properties": dict.fromkeys(node["properties"], True),
        "allOf": [{**member, "then": _complete(member["then"], definitions)} for member in node["allOf"]],
    }


def _members(node: Schema, definitions: Mapping[str, Schema]) -> Iterator[Schema]:
    """The schemas of a value: the object itself or the section that it refers to, and the members of a union."""
    if "$ref" in node:
        yield from _members(definitions[node["$ref"].removeprefix(_REF)], definitions)
        return
    yield node
    for member in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _members(member, definitions)


def _explain_patterns(node: Schema) -> None:
    """Add a message to each pattern: a valid value, as `imagegen validate` describes it."""
    for value in node.get("properties", {}).values():
        _explain(value, value["description"], (value.get("examples") or [None])[0])
        # Known names in a map have their own descriptions.
        _explain_patterns(value)


def _explain(node: object, description: str, example: object) -> None:
    if not isinstance(node, dict):
        return
    if "pattern" in node:
        node[_MESSAGE] = _message("value", description, example)
    for member in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        _explain(member, description, example)
    if isinstance(example, list):
        _explain(node.get("items"), description, example[0])
    if isinstance(example, dict):
        name, value = next(iter(example.items()))
        _explain(node.get("additionalProperties"), description, value)
        if "pattern" in node.get("propertyNames", {}):
            node["propertyNames"][_MESSAGE] = _message("name", description, name)


def _message(what: str, description: str, example: object) -> str:
    shown = f" For example: {example}" if isinstance(example, str) else ""
    return f"This {what} is not valid. {description}{shown}"
