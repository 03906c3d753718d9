"""Describes a kind of resource: its fields, from its model, and an example, from the shipped steps."""

import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

import annotated_types
import pydantic

from imagegen.steps import kinds, update
from imagegen.steps import resource as model
from imagegen.steps.describe import UNTIL_FIRST_BOOT, resource_texts
from imagegen.steps.model import Step
from imagegen.steps.notes import field_notes
from imagegen.steps.resource import FIRST_BOOT, Resource, Strict

# The types that have a name of their own. Types are compared by value, and a list does not need them hashable.
_NAMED: Final[tuple[tuple[object, str], ...]] = (
    (model.WindowsPath, "Windows path"),
    (model.Sha256, "sha256"),
    (model.Name, "name"),
    (update.BundledFile, "bundled file"),
    (kinds.CommandLine, "command line"),
    (kinds.Expression, "regular expression"),
    (kinds.MemberPath, "path in the archive"),
    (kinds.MemberName, "path in the archive, with /"),
    (kinds.RegistryKey, "registry key"),
    (kinds.Seconds, "seconds"),
    (kinds.Sid, "SID"),
)
_PLAIN: Final[Mapping[object, str]] = {str: "string", int: "number", bool: "true or false", types.NoneType: "null"}
_SPLIT: Final = (typing.Union, types.UnionType)


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a kind, or of a section in it: then its `name` begins with that of the section."""

    name: str
    type: str
    default: str | None
    """None: it must be given."""
    description: str


@dataclasses.dataclass(frozen=True)
class DescribedKind:
    """Everything that there is to know about a kind before it is used."""

    name: str
    summary: str
    fields: tuple[Field, ...]
    until: str | None
    """`first-boot` if a node no longer shows that such a resource is as planned."""
    used_by: tuple[str, ...]
    """The shipped steps with such a resource."""
    example: str
    """Such a resource of a shipped step, as it is written there: the one with the most fields."""


def describe_kind(name: str, steps: Mapping[str, Step]) -> DescribedKind:
    """Describe a kind that exists."""
    kind = kinds.KINDS[name]
    written = {step.name: found for step in steps.values() if (found := resource_texts(step, name))}
    texts = {text: count for found in written.values() for text, count in found.items()}
    return DescribedKind(
        name=name,
        summary=summary_of(kind),
        fields=tuple(_fields(kind, "")),
        until=None if kind.outlives_sealing else FIRST_BOOT,
        used_by=tuple(written),
        example=max(texts, key=lambda text: (texts[text], -len(text)), default=""),
    )


def summary_of(kind: type[Resource]) -> str:
    """What a resource of this kind is."""
    return inspect.cleandoc(kind.__doc__ or "").replace("\n", " ")


def _fields(section: type[Strict], under: str) -> Iterator[Field]:
    notes = field_notes(section)
    for name, annotation in inspect.get_annotations(section, eval_str=True).items():
        if name not in section.model_fields:
            continue
        found = section.model_fields[name]
        default = None if found.is_required() else _words_of_value(found.get_default(call_default_factory=True))
        yield Field(f"{under}{name}", _words(annotation), default, notes.get(name, ""))
        for inner, mark in _sections(annotation):
            yield from _fields(inner, f"{under}{name}{mark}.")


def _sections(annotation: object) -> Iterator[tuple[type[Strict], str]]:
    """The sections that a value is or holds, and how a path says which."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation, ""
        return
    mark = "[]" if typing.get_origin(annotation) is list else ""
    for inner in typing.get_args(annotation) if typing.get_origin(annotation) in (list, Annotated, *_SPLIT) else ():
        yield from ((section, mark + below) for section, below in _sections(inner))


def _words(annotation: object) -> str:
    """A type in words."""
    named = next((word for known, word in _NAMED if known == annotation), None)
    if named is not None:
        return named
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _words(inner[0]) + _bounds(inner[1:])
    if origin is Literal or origin in _SPLIT:
        return _any_of(list(_choices(annotation)))
    if origin is list:
        return f"list ({_words(inner[0])})"
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return "map"
    return _PLAIN[annotation]


def _choices(annotation: object) -> Iterator[str]:
    """What a value can be, each in words."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        yield from map(str, inner)
    elif origin in _SPLIT:
        yield from (choice for part in inner for choice in _choices(part))
    else:
        yield _words(annotation)


def _bounds(metadata: tuple[object, ...]) -> str:
    """The smallest and largest number, if both are declared."""
    rules = [rule for part in metadata if isinstance(part, pydantic.fields.FieldInfo) for rule in part.metadata]
    least = [rule.ge for rule in rules if isinstance(rule, annotated_types.Ge)]
    most = [rule.le for rule in rules if isinstance(rule, annotated_types.Le)]
    return f", {least[0]} to {most[0]}" if least and most else ""


def _any_of(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _words_of_value(value: object) -> str:
    return "null" if value is None else str(value)


def kind_lines(kind: DescribedKind, width: int) -> Iterator[str]:
    """A kind as text."""
    yield from textwrap.wrap(f"{kind.name}: {kind.summary}", width, subsequent_indent="  ")
    if kind.until:
        yield from textwrap.wrap(f"Always {UNTIL_FIRST_BOOT}", width, initial_indent="  ", subsequent_indent="  ")
    yield from ["", "Fields in a plan"]
    first = max(len(field.name) for field in kind.fields)
    for field in kind.fields:
        default = "" if field.default is None else f"; default: {field.default}"
        lead = f"  {field.name:<{first}}  "
        text = ". ".join(filter(None, [f"{field.type}{default}", field.description]))
        yield from textwrap.wrap(
            text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )
    if kind.used_by:
        yield from ["", "In a step", ""]
        # Not wrapped, so that it can be copied.
        yield from (f"    {line}".rstrip() for line in kind.example.splitlines())
        yield from ["", *textwrap.wrap(f"Used by: {', '.join(kind.used_by)}", width, subsequent_indent="  ")]
