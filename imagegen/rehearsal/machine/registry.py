"""The registry's HKLM: keys and typed values, compared without case."""

from __future__ import annotations

import dataclasses
import re

from imagegen.rehearsal.machine.refusal import RefusedByWindows

Data = str | int | bytes | tuple[str, ...]
TYPES: dict[str, type] = {
    "String": str,
    "ExpandString": str,
    "MultiString": tuple,
    "DWord": int,
    "QWord": int,
    "Binary": bytes,
}
LIMITS = {"DWord": 2**32, "QWord": 2**64}


@dataclasses.dataclass(frozen=True)
class Value:
    """A value and its type. Numbers are unsigned."""

    type: str
    data: Data

    def __post_init__(self) -> None:
        if not isinstance(self.data, TYPES[self.type]):
            raise RefusedByWindows(f"a {self.type} cannot hold {self.data!r}")
        limit = LIMITS.get(self.type)
        if limit is not None and isinstance(self.data, int) and not 0 <= self.data < limit:
            raise RefusedByWindows(f"a {self.type} cannot hold {self.data}")


@dataclasses.dataclass
class _Key:
    name: str
    values: dict[str, tuple[str, Value]] = dataclasses.field(default_factory=dict)


class Registry:
    """The keys by lower-case path. The parents of every key exist too."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {"hklm:": _Key("HKLM:")}
        self.opened: set[str] = set()
        """The keys, in lower case, that only TrustedInstaller should change and that administrators can change now."""

    def __deepcopy__(self, _memo: object) -> Registry:
        """A copy. Machines are copied often, and only the keys and their lists of values can change."""
        other = Registry()
        other._keys = {path: _Key(key.name, dict(key.values)) for path, key in self._keys.items()}
        other.opened = set(self.opened)
        return other

    @staticmethod
    def _parts(key: str) -> list[str]:
        names = key.split("\\")
        if not re.fullmatch(r"(?i)HKLM:?", names[0]) or not all(names):
            raise RefusedByWindows(f"not a key under HKLM: {key}")
        return ["HKLM:", *names[1:]]

    def _fold(self, key: str) -> str:
        return "\\".join(self._parts(key)).lower()

    def has_key(self, key: str) -> bool:
        return self._fold(key) in self._keys

    def make_key(self, key: str) -> None:
        """Make a key and the keys above it. An existing key keeps its values."""
        names = self._parts(key)
        for count in range(1, len(names) + 1):
            self._keys.setdefault("\\".join(names[:count]).lower(), _Key(names[count - 1]))

    def remove_key(self, key: str) -> None:
        gone = self._fold(key)
        if gone not in self._keys:
            raise RefusedByWindows(f"cannot find key {key}")
        for known in [known for known in self._keys if known == gone or known.startswith(gone + "\\")]:
            del self._keys[known]

    def subkeys(self, key: str) -> list[str]:
        """The names of the keys directly below; none if the key does not exist."""
        above = self._fold(key) + "\\"
        return sorted(
            entry.name
            for known, entry in self._keys.items()
            if known.startswith(above) and "\\" not in known[len(above) :]
        )

    def value(self, key: str, name: str) -> Value | None:
        entry = self._keys.get(self._fold(key))
        found = entry.values.get(name.lower()) if entry else None
        return found[1] if found else None

    def values(self, key: str) -> dict[str, Value]:
        entry = self._keys.get(self._fold(key))
        return dict(entry.values.values()) if entry else {}

    def text(self, key: str, name: str) -> str | None:
        """The value if it is text."""
        value = self.value(key, name)
        return value.data if value and isinstance(value.data, str) else None

    def number(self, key: str, name: str) -> int | None:
        """The value if it is a number."""
        value = self.value(key, name)
        return value.data if value and isinstance(value.data, int) else None

    def write(self, key: str, name: str, value: Value) -> None:
        entry = self._keys.get(self._fold(key))
        if entry is None:
            raise RefusedByWindows(f"cannot find key {key}")
        spelled = entry.values[name.lower()][0] if name.lower() in entry.values else name
        entry.values[name.lower()] = (spelled, value)
