"""The reference of every key: it is fresh, it validates, and each commented key works once it is uncommented."""

from __future__ import annotations

import dataclasses
import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic
import pytest

from imagegen.cli.inspection import known_facts
from imagegen.config.fields import keys
from imagegen.config.model import ConfigFile
from imagegen.config.reference import reference_text, scalar
from imagegen.config.yaml import Document, parse_yaml
from imagegen.plan import loading
from tests.golden_files import compare_golden

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

FILE = Path(__file__).parents[3] / "configs" / "reference.yaml"
_KEY = re.compile(r"(?P<indent> *)(?P<mark>#?)(?P<dash>- )?(?P<name>[a-z][a-z0-9_]*):(?P<value> .*)?")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line that holds a key."""

    path: tuple[str, ...]
    text: str
    commented: bool
    required: bool
    dash: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)


def read(text: str) -> list[Line]:
    found: list[Line] = []
    above: list[tuple[int, str]] = []
    prose = ""
    for row in text.splitlines():
        match = _KEY.fullmatch(row)
        if match is None:
            prose = row
            continue
        depth = len(match["indent"]) + 2 * bool(match["dash"])
        above = [*((at, name) for at, name in above if at < depth), (depth, match["name"])]
        path = tuple(name for _, name in above)
        line = f"{match['indent']}{match['dash'] or ''}{match['name']}:{match['value'] or ''}"
        found.append(Line(path, line, bool(match["mark"]), "; required" in prose, bool(match["dash"])))
    return found


TEXT = reference_text(known_facts())
LINES = read(TEXT)


def uncommented(wanted: Line) -> str:
    """The reference with one key said, or one section as a whole, and whatever is required around it."""
    rival = ("runtime", "containerd") if wanted.path[:2] == ("runtime", "docker") else None
    said: list[Line] = []
    for line in LINES:
        around = line.path == wanted.path[: len(line.path)]
        inside = line.path[: len(wanted.path)] == wanted.path
        needed = (line.required or line.dash) and line.path[:-1] in {item.path for item in said}
        if (not line.commented or around or inside or needed) and line.path[:2] != rival:
            said.append(line)
    return "\n".join(line.text for line in said)


def model_of(document: Document) -> ConfigFile:
    return ConfigFile.model_validate(document.data)


def errors_of(document: Document) -> list[ErrorDetails]:
    try:
        model_of(document)
    except pydantic.ValidationError as error:
        return error.errors()
    return []


def at(data: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - any part of a document
    for part in path:
        data = (data[0] if isinstance(data, list) else data)[part]
    return data


def test_reference_is_fresh() -> None:
    compare_golden({FILE: TEXT})


def test_reference_validates_and_builds_as_it_is() -> None:
    loaded = loading.load(loading.ConfigRequest(FILE, datetime.date(2026, 11, 18)))
    assert (loaded.warnings, loaded.unimplemented) == ((), ())
    assert list(loaded.config.targets.named()) == ["aws", "azure"]


def test_reference_has_every_key_once() -> None:
    def plain(path: str) -> str:
        return path.replace("[]", "").replace("overrides.*.", "overrides.calico_url.")

    names = [line.name for line in LINES]
    assert len(names) == len(set(names))
    assert set(names) - {"overrides.containerd_url", "overrides.calico_url"} == {
        plain(key.path) for key in keys(ConfigFile)
    }


def test_every_key_works_when_its_comment_goes() -> None:
    """At most, a section says that the key needs another one, or excludes it. Each value is valid."""
    for line in [line for line in LINES if line.commented]:
        document = parse_yaml(uncommented(line).encode(), "reference")
        assert at(document.data, line.path) is not None, line.name
        found = errors_of(document)
        assert [item for item in found if not isinstance(item["input"], dict | None)] == [], line.name
        assert {item["type"] for item in found} <= {"value_error"}, line.name


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "null",
        "2022",
        "1.36",
        "12h",
        "a: b",
        "#x",
        "C:\\k",
        'a "b"',
        "it's \\ x",
        "é",
        "[a]",
        "",
        "a\nb",
        "- x",
        "2026-01-01",
    ],
)
def test_texts_stay_texts(value: str) -> None:
    assert parse_yaml(f"key: {scalar(value)}\n".encode(), "-").data == {"key": value}
