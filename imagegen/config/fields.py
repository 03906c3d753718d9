"""Lists the keys of the config's model with their paths, types, defaults, descriptions and examples. Pure."""

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Final

import pydantic

from imagegen.config.model import ImageConfig
from imagegen.config.problems import models_in
from imagegen.config.yaml import YamlPath

_MARKS: Final[Mapping[object, str]] = {dict: ".*", list: "[]"}


@dataclasses.dataclass(frozen=True)
class Key:
    """One key of the config. In `path`, `*` stands for any name in a map, and `[]` for any item of a list."""

    path: str
    field: pydantic.fields.FieldInfo
    inner: tuple[type[pydantic.BaseModel], ...]
    """The sections that the value can be or contain."""
    mark: str
    """What paths have between the key and the keys of these sections: `.*`, `[]` or nothing."""

    @property
    def default(self) -> object:
        return self.field.get_default(call_default_factory=True, validated_data={})


def keys(of: type[pydantic.BaseModel] = ImageConfig, under: str = "") -> Iterator[Key]:
    """Every key of a section and of its inner sections, in the order of their declaration."""
    for name, field in of.model_fields.items():
        origins = [typing.get_origin(part) for part in (field.annotation, *typing.get_args(field.annotation))]
        mark = next((_MARKS[origin] for origin in origins if origin in _MARKS), "")
        key = Key(f"{under}{name}", field, tuple(models_in(field.annotation)), mark)
        yield key
        for section in key.inner:
            yield from keys(section, f"{key.path}{mark}.")


def is_string(path: YamlPath) -> bool:
    """Whether the value at a path must be a string or null. `--set` does not parse such a value as YAML."""
    found: list[object] = [ImageConfig]
    for part in path:
        found = [inner for member in found for inner in _inside(member, part)]
    return set(found) - {types.NoneType} == {str}


def _inside(member: object, part: str | int) -> list[object]:
    """The types of one key of a section, or of the values in a map or list."""
    if isinstance(member, type) and issubclass(member, pydantic.BaseModel):
        if part in member.model_fields:
            return _members(member.model_fields[str(part)].annotation)
        # A section that allows other names declares the type of their values.
        extras = (inspect.get_annotations(section).get("__pydantic_extra__") for section in member.__mro__)
        member = next(filter(None, extras), None)
    return _members(typing.get_args(member)[-1]) if typing.get_origin(member) in (dict, list) else []


def _members(annotation: object) -> list[object]:
    """The members of a union without their annotations, and the types of the values of a literal."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _members(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(annotation) for member in _members(part)]
    if origin is typing.Literal:
        return [type(value) for value in typing.get_args(annotation)]
    return [annotation]
