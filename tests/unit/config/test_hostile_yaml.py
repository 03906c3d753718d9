"""YAML that no config needs: a result or a find_problem, in a fraction of a second, and never another error."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imagegen.base.errors import ConfigError
from imagegen.config.yaml import MAX_BYTES, MAX_VALUES, parse_yaml, read_yaml

if TYPE_CHECKING:
    from pathlib import Path

# Of processor time, which another process does not lengthen. The worst of these cases needs a third of it.
SECONDS = 1.0

BIG = {
    "brackets": b"a: " + b"[" * (MAX_BYTES - 3),
    "braces": b"a: " + b"{" * (MAX_BYTES - 3),
    "empty lists": b"a: [" + b"[]," * (MAX_BYTES // 3 - 2) + b"]",
    "numbers": b"a: [" + b"1," * (MAX_BYTES // 2 - 3) + b"]",
    "keys": b"".join(b"k%d: 1\n" % number for number in range(MAX_VALUES)),
    "the same key": b"k: 1\n" * MAX_VALUES,
    "documents": b"---\n" * (MAX_BYTES // 4),
    "lists as keys": b"? [a]\n: b\n" * 90_000,
    "colons for the slow parser": b"a: [" + b"x:y," * (32 * 1024 // 4 - 2) + b"]",
    "too many colons for the slow parser": b"a: [" + b"x:y," * (MAX_BYTES // 4 - 2) + b"]",
    "a quote that does not end": b"a: [x:y]\nb: '" + b"x " * (MAX_BYTES // 2 - 10),
    "aliases": b"a: &a [x]\n" + b"".join(b"b%d: [*a, *a]\n" % number for number in range(50_000)),
}


@pytest.mark.parametrize("raw", BIG.values(), ids=BIG)
def test_large_is_quick(raw: bytes) -> None:
    assert len(raw) <= MAX_BYTES
    begun = time.process_time()
    _read(raw)
    assert time.process_time() - begun < SECONDS


def test_a_large_text_is_a_text() -> None:
    begun = time.process_time()
    assert parse_yaml(b"a: " + b"x" * (MAX_BYTES - 3), "f").data == {"a": "x" * (MAX_BYTES - 3)}
    assert time.process_time() - begun < SECONDS


def test_the_number_of_values_is_bounded() -> None:
    # The list is a value, and so are the keys and values around it.
    at_most = MAX_VALUES - 3
    assert len(parse_yaml(b"a: [" + b"1," * at_most + b"]", "f").data["a"]) == at_most
    with pytest.raises(ConfigError, match="more than 20000 keys and values"):
        parse_yaml(b"a: [" + b"1," * (at_most + 1) + b"]", "f")


@pytest.mark.parametrize(
    ("raw", "line", "message"),
    [
        (b"a: &x [b]\nc: *x", 1, "anchors and aliases are not allowed"),
        (b"a: !!python/object/apply:os.system [x]", 1, "tags are not allowed"),
        (b"<<: {b: 1}", 1, "merge keys are not allowed"),
        (b"%YAML 1.1\n---\na: yes", 1, "directives are not allowed"),
        (b"%TAG ! !x\n---\na: 1", 1, "directives are not allowed"),
        (b"a: 1\n---\nb: 2", 2, "a second document begins here"),
        (b"? [a]\n: b", 1, "a key must be a string"),
        (b"{{a: 1}: b}", 1, "a key must be a string"),
        pytest.param(b"? " + b"x" * 1025 + b"\n: 1", 1, "a key must be a string", id="long key"),
        (b"a: 1\na: 2", 2, "duplicate key"),
        (b'1: a\n"1": b', 2, "duplicate key"),
        (b"a: \0", 1, "the character U+0000 is not allowed"),
        (b"a: \x1b", 1, "the character U+001B is not allowed"),
        (b"a: \xc2\x85b: 1", 1, "the character U+0085 is not allowed"),
        (b"a: x\xe2\x80\xa8b: 1", 1, "the character U+2028 is not allowed"),
        (b"a: 1\n\xef\xbb\xbfb: 1", 2, "the character U+FEFF is not allowed"),
        (b'a: "\\0"', 1, "the character U+0000 is not allowed"),
        (b'a: "C:\\bin"', 1, "the character U+0008 is not allowed"),
        (b'a: "\\ud800"', 1, "the character U+D800 is not allowed"),
        (b'"\\ude00": 1', 1, "the character U+DE00 is not allowed"),
        (b"a: \xed\xa0\x80", 1, "byte 0xed is not UTF-8"),
        pytest.param(b"a: " + b"1" * 100_000, 1, f"'{'1' * 60}…' is not a valid number", id="digits"),
        pytest.param(b"a: 0x" + b"f" * 4000, 1, f"'0x{'f' * 58}…' is not a valid number", id="hex"),
        (b"a: 0x_", 1, "'0x_' is not a valid number"),
        (b"a: 010", 1, "'010' is not a valid number"),
        (b"a: .inf", 1, "'.inf' is not a valid number"),
        (b"a: -.NaN", 1, "'-.NaN' is not a valid number"),
        (b"a: 1e999", 1, "'1e999' is not a valid number"),
        (b"a:\n\tb: 1", 2, "found character '\\t' that cannot start any token"),
    ],
)
def test_refused(raw: bytes, line: int, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(raw, "f")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line, problem.message) == ("f", line, message)


def test_what_follows_a_refused_key_is_judged_too() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(b"? [a, {b: c}]\n: {d: [1]}\ne: 1\ne: [f, {g: 2}]\nh: 0x_\n", "f")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [(1, ""), (4, "e"), (5, "h")]


@pytest.mark.parametrize(
    "raw",
    [
        b'a: "\\U00110000"',
        b'a: "\\UFFFFFFFF"',
        pytest.param(b"%YAML " + b"1" * 10_000 + b".1\n---\na: 1", id="version"),
    ],
)
def test_what_the_parser_cannot_hold_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigError, match="f is not valid YAML"):
        parse_yaml(raw, "f")


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\xef\xbb\xbfa: 1", 1),
        (b"a: 0o17", 15),
        (b"a: 0o", "0o"),
        (b"a: 0o8", "0o8"),
        (b"a: 0x", "0x"),
        (b"a: 0b101", 5),
        (b"a: -0x1F", -31),
        (b"a: 190:20:30", "190:20:30"),
        (b"a: =", "="),
        (b"a: <<", "<<"),
        (b"a: ._", "._"),
        (b'a: "\\ud83d\\ude00"', "\U0001f600"),
        (b"a: 'C:\\bin'", "C:\\bin"),
        (b"a:\t1", 1),
        (b"a: x\r\n", "x"),
        (b"a: 1\n...\n", 1),
        (b"a: " + b"9" * 100, int("9" * 100)),
    ],
)
def test_read(raw: bytes, value: object) -> None:
    read = parse_yaml(raw, "f").data
    assert read == {"a": value}
    assert type(read["a"]) is type(value)


def test_a_path_that_can_be_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "config.yaml", tmp_path / ("x" * 300)):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_yaml(path)


PIECES = [
    *(b"%YAML 1.1\n---\n", b"%X a\n", b"---\n", b"...\n", b"? ", b": ", b"- ", b"[", b"]", b"{", b"}", b",", b"&a "),
    *(
        b"*a",
        b"!!str ",
        b"!x ",
        b"!%ff ",
        b"!<t:x>",
        b"|\n",
        b">-\n",
        b"|0",
        b">9+",
        b"\t",
        b"\r\n",
        b"\n",
        b"  ",
        b"x:y",
    ),
    *(b'"\\ud800"', b'"\\U00110000"', b'"\\x', b"'", b'"', b"#", b"<<: ", b"\\", b"1e999", b"0x", b".inf", b"12:30:45"),
    *(b"2001-01-01", b"~", b"@", b"`", b"\xc2\x85", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"\xff", b"1" * 5000, b"k", b"0"),
]
SOUND = b"a: &b\n  - c: 1.30\n    d: 'e'\n  - {f: [true, ~], \"g\": 0x1}\nh: |\n  text\n"


@given(
    st.lists(st.sampled_from(PIECES), max_size=10).map(b"".join) | st.binary(max_size=40), st.integers(0, len(SOUND))
)
@settings(max_examples=150, deadline=None)
def test_whatever_is_put_into_a_document_is_read_or_refused(piece: bytes, at: int) -> None:
    for raw in (piece, SOUND[:at] + piece + SOUND[at:]):
        read = _read(raw)
        if isinstance(read, ConfigError):
            assert all(problem.file == "f" and problem.line >= 1 for problem in read.problems)
        else:
            # What was read can be shown and stored.
            assert repr(read).encode()


def _read(raw: bytes) -> object:
    try:
        return parse_yaml(raw, "f").data
    except ConfigError as error:
        return error
