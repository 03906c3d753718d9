"""The config's model as data: every key with its path, type, default, description and examples. Pure."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from typing import TYPE_CHECKING

import pydantic

from imagegen.config.model import ImageConfig
from imagegen.documents.problems import models_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

    from imagegen.documents.yaml import YamlPath


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of the config. In `path`, `*` stands for a name of free choice and `[]` for a place in a list."""

    path: str
    field: FieldInfo
    inner: tuple[type[pydantic.BaseModel], ...]
    """The sections that it may hold."""
    mark: str
    """What stands in paths between the key and the keys of these sections: `.*`, `[]` or nothing."""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2].removesuffix("[]")

    @property
    def description(self) -> str:
        return self.field.description or ""

    @property
    def required(self) -> bool:
        return self.field.is_required()

    @property
    def default(self) -> object:
        return self.field.get_default(call_default_factory=True, validated_data={})


def keys(of: type[pydantic.BaseModel] = ImageConfig, under: str = "") -> Iterator[Key]:
    """Every key of a section and of the sections in it, in the order in which they are declared."""
    for name, field in of.model_fields.items():
        inner = tuple(models_in(field.annotation))
        mark = _mark(field.annotation)
        yield Key(f"{under}{name}", field, inner, mark)
        for section in inner:
            yield from keys(section, f"{under}{name}{mark}.")


def leaves() -> list[Key]:
    """The keys that hold a value and not a section; of a key that may hold either, what the section has."""
    return [key for key in keys() if not key.inner]


def _mark(annotation: object) -> str:
    for part in (annotation, *typing.get_args(annotation)):
        origin = typing.get_origin(part)
        if origin in (dict, list):
            return ".*" if origin is dict else "[]"
    return ""


def takes_text(path: YamlPath) -> bool:
    """Whether the value at a place is a text, if it is there: what `--set` gives there is not read as YAML."""
    found: list[object] = [ImageConfig]
    for part in path:
        found = [inner for member in found for inner in _inside(member, part)]
    return {_plain(part) for part in found} - {types.NoneType} == {str}


def _inside(member: object, part: str | int) -> list[object]:
    """What a place in a section, a map or a list may hold."""
    if isinstance(member, type) and issubclass(member, pydantic.BaseModel):
        if part in member.model_fields:
            return _members(member.model_fields[str(part)].annotation)
        # A section that takes names of free choice says what they hold.
        extras = (inspect.get_annotations(section).get("__pydantic_extra__") for section in member.__mro__)
        member = next(filter(None, extras), None)
    return _members(typing.get_args(member)[-1]) if typing.get_origin(member) in (dict, list) else []


def _members(annotation: object) -> list[object]:
    """What a union may be, without the words around each type."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(annotation) for member in _members(part)]
    return [annotation]


def _plain(annotation: object) -> object:
    if typing.get_origin(annotation) is typing.Literal:
        kinds = {type(value) for value in typing.get_args(annotation)}
        return kinds.pop() if len(kinds) == 1 else annotation
    return annotation
