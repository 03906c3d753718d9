"""Decodes a configuration as kubeadm of a minor does: the API versions that it reads, and their fields."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import numbers
from imagegen.rehearsal.node.facts import is_within, read_facts
from imagegen.rehearsal.node.yaml_text import read_yaml_map

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "kubeadm.k8s.io"
KIND = "JoinConfiguration"
_SCALARS = {"string": str, "boolean": bool, "integer": int}
_GO_NAMES = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
# The kinds that are lists of objects.
_LISTS = ("Args", "Taints")
# Up to this API version the extra arguments are a map.
_LAST_MAP = "v1beta3"


class KubeadmError(Exception):
    """kubeadm ends with an error. `is_validation` where it found several faults of its configuration at once."""

    def __init__(self, message: str, *, is_validation: bool = False) -> None:
        super().__init__(message)
        self.is_validation = is_validation


@dataclasses.dataclass(frozen=True)
class Decoded:
    """A JoinConfiguration with the fields that its API version has."""

    version: str
    data: dict[str, Any]
    warnings: tuple[str, ...]


def decode_join(text: bytes, minor: str, shown_as: str) -> Decoded:
    """Find the JoinConfiguration among the documents of a file."""
    documents = list(_split(text, shown_as))
    kinds = [document["kind"] for document in documents]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise KubeadmError(f'invalid configuration: kind "{kind}" is specified twice in YAML file')
    for document in documents:
        if document["kind"] == KIND:
            return _decode(document, minor)
    raise KubeadmError(f"no {KIND} found in the supplied config")


def _split(text: bytes, shown_as: str) -> Iterator[dict[str, Any]]:
    for part in re.split(rb"(?m)^---.*$", text):
        if not part.strip():
            continue
        try:
            document = read_yaml_map(part, shown_as)
        except (ConfigError, ValueError) as error:
            raise KubeadmError(f"error converting YAML to JSON: {error}") from error
        if not all(isinstance(document.get(key), str) and document[key] for key in ("apiVersion", "kind")):
            raise KubeadmError(
                "invalid configuration for GroupVersionKind: kind and apiVersion is mandatory information that must be "
                "specified"
            )
        yield document


def _decode(document: dict[str, Any], minor: str) -> Decoded:
    stated = document["apiVersion"]
    group, _, version = stated.rpartition("/")
    row = read_facts("kubeadm")["api_versions"].get(version) if group == GROUP else None
    described = f'"{stated}" (kind: "{KIND}")'
    if row is None or not is_within(minor, row["experimental"] or row["first"], None):
        raise KubeadmError(f'no kind "{KIND}" is registered for version "{stated}" in scheme of kubeadm {minor}')
    if not is_within(minor, None, row["last"]):
        raise KubeadmError(
            f"your configuration file uses an old API spec: {described}. Please use kubeadm {row['use']} instead and "
            "run 'kubeadm config migrate --old-config old-config-file --new-config new-config-file'"
        )
    if not is_within(minor, row["first"], None):
        raise KubeadmError(f"experimental API spec: {described} is not allowed")
    warnings = []
    if row["deprecated"] and numbers(minor) >= numbers(row["deprecated"]):
        warnings.append(f"your configuration file uses a deprecated API spec: {described}")
    unknown: list[str] = []
    data = _read_object(document, KIND, "", version, unknown)
    if unknown:
        fields = ", ".join(f'unknown field "{field}"' for field in unknown)
        warnings.append(f"error unmarshaling configuration {stated}, Kind={KIND}: strict decoding error: {fields}")
    return Decoded(version, data, tuple(warnings))


def _read_object(value: dict[str, Any], name: str, path: str, version: str, unknown: list[str]) -> dict[str, Any]:
    """The known fields of an object. kubeadm join of every minor only warns of unknown ones, and ignores them."""
    known = read_facts("kubeadm")["objects"][name]
    data: dict[str, Any] = {}
    for key, item in value.items():
        place = f"{path}.{key}" if path else str(key)
        kind, first, last = known.get(key, (None, None, None))
        if kind is None or (first and version < first) or (last and version > last):
            unknown.append(place)
        elif item is not None:
            data[key] = _read(item, kind, place, version, unknown)
    return data


def _read(value: object, kind: str, path: str, version: str, unknown: list[str]) -> Any:  # noqa: ANN401 - JSON
    if kind == "ExtraArgs":
        kind = "map" if version <= _LAST_MAP else "Args"
    if kind in _SCALARS:
        _need(value, _SCALARS[kind], kind, path)
        return value
    if kind == "map":
        for key, item in _need(value, dict, "map[string]string", path).items():
            _need(item, str, "string", f"{path}.{key}")
        return value
    if kind == "strings":
        return [_need(item, str, "string", path) for item in _need(value, list, "[]string", path)]
    if kind in _LISTS:
        items = _need(value, list, f"[]{kind}", path)
        return [_read_object(_need(item, dict, kind, path), kind, path, version, unknown) for item in items]
    return _read_object(_need(value, dict, kind, path), kind, path, version, unknown)


def _need(value: object, expected: type, name: str, path: str) -> Any:  # noqa: ANN401 - JSON
    """The value, if Go's JSON decoder can put it into a field of this type."""
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        given = next((word for kind, word in _GO_NAMES.items() if isinstance(value, kind)), "null")
        raise KubeadmError(f"json: cannot unmarshal {given} into Go struct field {KIND}.{path} of type {name}")
    return value
