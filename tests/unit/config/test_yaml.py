"""YAML as a config needs it: plain data with lines, and one kind of error for everything else."""

from __future__ import annotations

import json
import math
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imagegen.base.errors import ConfigError
from imagegen.config.yaml import MAX_BYTES, MAX_DEPTH, Document, Unquoted, dotted, parse_yaml, read_yaml

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")), max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, PLAIN, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_json_is_read_as_json(data: dict[str, Any]) -> None:
    assert parse_yaml(json.dumps(data, ensure_ascii=False).encode(), "f").data == data


@given(st.binary(max_size=80) | st.text(string.printable, max_size=80).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_whatever_is_there_is_read_or_refused(raw: bytes) -> None:
    read = _read(raw)
    if isinstance(read, ConfigError):
        assert read.message.startswith("f ")
        assert all(problem.file == "f" and problem.line >= 1 for problem in read.problems)
    else:
        assert set(read.lines.values()) <= set(range(1, raw.count(b"\n") + raw.count(b"\r") + 2))


def _read(raw: bytes) -> Document | ConfigError:
    try:
        return parse_yaml(raw, "f")
    except ConfigError as error:
        return error


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a: 1_000", 1000),
        ("a: 0x1F", 31),
        ("a: true", True),
        ("a: False", False),
        ("a: ~", None),
        ("a:", None),
        ("a: yes", "yes"),
        ("a: on", "on"),
        ("a: 12:30", "12:30"),
        ("a: 1.36.4", "1.36.4"),
        ("a: '1.36'", "1.36"),
        ('a: "C:\\\\k"', "C:\\k"),
        ("a: C:\\k", "C:\\k"),
        ("a: |\n  one\n  two\n", "one\ntwo\n"),
        ("a: []", []),
        ("a: {}", {}),
        ("a: [https://x.example.com/y]", ["https://x.example.com/y"]),
        ("a: {url: https://x.example.com/y}", {"url": "https://x.example.com/y"}),
        ("a: {path: C:\\k}", {"path": "C:\\k"}),
    ],
)
def test_values(text: str, value: object) -> None:
    read = parse_yaml(text.encode(), "f").data["a"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(("text", "spelt", "number"), [("1.30", "1.30", 1.3), ("1e3", "1e3", 1000.0)])
def test_number_with_a_point_keeps_its_spelling(text: str, spelt: str, number: float) -> None:
    read = parse_yaml(f"a: {text}".encode(), "f").data["a"]
    assert isinstance(read, Unquoted)
    assert (read.text, float(read)) == (spelt, number)


def test_date_is_no_number() -> None:
    read = parse_yaml(b"a: 2026-11-18", "f").data["a"]
    assert (read.text, math.isnan(read)) == ("2026-11-18", True)


def test_lines_are_of_keys_and_items() -> None:
    document = parse_yaml(b"# first\na:\n  b: 1\n  c:\n    - x\n    - y: 2\n", "f")
    assert document.lines == {
        (): 2,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "c"): 4,
        ("a", "c", 0): 5,
        ("a", "c", 1): 6,
        ("a", "c", 1, "y"): 6,
    }
    assert document.place(("a", "c", 1, "z", "deep")).line == 6
    assert document.place(("elsewhere",)).line == 2


@pytest.mark.parametrize(
    "text", ["a: &x 1\n", "a: *x\n", "a: !!str 1\n", "a: !own {b: 1}\n", "a: !!set {b}\n", "a: ! 1\n"]
)
def test_anchors_aliases_and_tags_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(f"ok: 1\n{text}".encode(), "f")
    assert [problem.line for problem in caught.value.problems] == [2]


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    rows = [b"a0: &a0 [x, x]", *(b"a%d: &a%d [*a%d, *a%d]" % (n, n, n - 1, n - 1) for n in range(1, 60))]
    with pytest.raises(ConfigError, match="cannot be used"):
        parse_yaml(b"\n".join(rows), "f")


@pytest.mark.parametrize(("depth", "fine"), [(MAX_DEPTH - 1, True), (MAX_DEPTH, False), (100_000, False)])
def test_depth_is_bounded(depth: int, fine: bool) -> None:
    raw = b"a: " + b"[" * depth + b"]" * depth
    if fine:
        assert parse_yaml(raw, "f").data["a"] is not None
    else:
        with pytest.raises(ConfigError, match=f"more than {MAX_DEPTH} levels"):
            parse_yaml(raw, "f")


def test_size_is_bounded() -> None:
    parse_yaml(b"#" * MAX_BYTES, "f")
    with pytest.raises(ConfigError, match="f is too large"):
        parse_yaml(b"#" * (MAX_BYTES + 1), "f")


def test_every_duplicate_key_is_told() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(b"a: 1\nb: {c: 1, c: 2}\na: 2\n", "f")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [(2, "b.c"), (3, "a")]


def test_same_bytes_are_the_same_with_any_line_ends(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    file = tmp_path / "config.yaml"
    file.write_bytes(b"a: 1\r\nb:\r\n  - 2\r\n")
    assert read_yaml(file) == parse_yaml(b"a: 1\nb:\n  - 2\n", str(file))


@pytest.mark.parametrize(
    ("path", "text"), [((), ""), (("a",), "a"), (("a", "b", 0, "c"), "a.b[0].c"), ((0, "file"), "[0].file")]
)
def test_paths_are_written_as_people_do(path: tuple[str | int, ...], text: str) -> None:
    assert dotted(path) == text
