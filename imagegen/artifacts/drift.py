"""Compares two locks: what an entry was, and what it is now. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from imagegen.artifacts.request import host_of, shown_url

if TYPE_CHECKING:
    from imagegen.artifacts.lock import Lock

_NONE = "not locked"
# What is only known about the same bytes.
_NO_CONTENT = {"confirmed", "published", "redirected_to", "signed", "not_programs", "sizes", "dotted"}
_FOLLOWS = {"size", "members", "images", "layers", "config", "manifest"}

_Facts = Mapping[str, object]


@dataclasses.dataclass(frozen=True)
class Change:
    """An entry of a lock that is another one now."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


def compare_locks(old: Lock | None, new: Lock) -> list[Change]:
    """The entries of the new lock that the old one does not have, or has with other contents."""
    before = _entries(old) if old else {}
    return [*_changes(before, _entries(new))]


def moved_redirects(old: Lock | None, new: Lock) -> Iterator[str]:
    """A line for each artifact whose URL redirects to another host than it did. Its bytes are compared in any case."""
    for name, now in new.artifacts.items():
        before = old.artifacts.get(name) if old else None
        if before is None or before.url != now.url or not before.redirected_to or not now.redirected_to:
            continue
        was, is_now = host_of(before.redirected_to), host_of(now.redirected_to)
        if was != is_now:
            yield f"{name}: {shown_url(now.url)} redirects to {is_now} now, no longer to {was}"


def _entries(lock: Lock) -> dict[str, _Facts]:
    """What identifies each entry."""
    bases = {f"base image for {name}": {**base.identity, **base.place} for name, base in lock.base_images.items()}
    artifacts = {name: artifact.model_dump(exclude=_NO_CONTENT) for name, artifact in lock.artifacts.items()}
    images = {name: image.model_dump() for name, image in lock.images.items()}
    return bases | artifacts | images


def _changes(before: Mapping[str, _Facts], now: Mapping[str, _Facts]) -> Iterator[Change]:
    for name, facts in now.items():
        known = before.get(name)
        if known is None:
            shown = [key for key, value in facts.items() if key not in _FOLLOWS and value is not None]
            yield Change(name, _NONE, _text(facts, shown, {}))
        elif keys := [key for key in facts if known.get(key) != facts[key]]:
            # The others follow from the digest.
            shown = [key for key in keys if key not in _FOLLOWS] or keys
            yield Change(name, _text(known, shown, facts), _text(facts, shown, known))


def _text(facts: _Facts, keys: Iterable[str], other: _Facts) -> str:
    return ", ".join(f"{key} {_value(facts.get(key), other.get(key))}" for key in keys)


def _value(value: object, other: object) -> str:
    """Of a map, the first item that differs."""
    if not isinstance(value, Mapping):
        return "none" if value is None else str(value)
    others = other if isinstance(other, Mapping) else {}
    key = next(key for key in sorted({*value, *others}) if value.get(key) != others.get(key))
    return f"{key}: {value[key]}" if key in value else f"without {key}"
