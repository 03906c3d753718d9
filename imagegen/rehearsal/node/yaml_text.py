"""YAML of kubeadm and kubelet: written with sorted keys as Go's programs write it, and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from imagegen.config.yaml import parse_yaml


def yaml_text(value: Mapping[str, Any]) -> str:
    """A map as YAML with sorted keys. Every string is in double quotes, which means the same."""
    return "".join(f"{line}\n" for line in _lines(value))


def _lines(value: object) -> list[str]:
    if isinstance(value, Mapping) and value:
        return [line for key in sorted(value) for line in _entry(f"{key}:", value[key])]
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return [line for item in value for line in _item(item)]
    return [json.dumps(value, ensure_ascii=False)]


def _entry(key: str, value: object) -> list[str]:
    lines = _lines(value)
    is_block = isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)
    if not is_block:
        return [f"{key} {lines[0]}"]
    return [key, *(line if isinstance(value, Sequence) else f"  {line}" for line in lines)]


def _item(value: object) -> list[str]:
    first, *rest = _lines(value)
    return [f"- {first}", *(f"  {line}" for line in rest)]


def read_yaml_map(text: bytes, shown_as: str) -> dict[str, Any]:
    """One document as a map; an error or another value is a ConfigError or a ValueError."""
    data = parse_yaml(text, shown_as).data
    if not isinstance(data, dict):
        raise ValueError(f"{shown_as} is not a map")
    return data
