"""A model's complaints in plain words, at the right place, with the nearest name. tests/errors has whole messages."""

from __future__ import annotations

import json
import tracemalloc
from typing import Annotated, Any, Literal

import pydantic
import pytest

from imagegen.config.problems import known_keys, model_problems, nearest
from imagegen.config.yaml import parse_yaml
from imagegen.steps.resource import Strict


class Inner(Strict):
    """A section."""

    colour: Annotated[Literal["red", "green"], pydantic.Field(description="The colour.")]
    size: Annotated[int, pydantic.Field(ge=1, le=9)] = 1
    on: bool = False
    wait: Annotated[int, pydantic.Field(description="Minutes until the end.")] = 5
    limit_s: int = 5
    disk_gb: int = 5


class Outer(Strict):
    """A document."""

    name: Annotated[str, pydantic.Field(description="The name.", pattern="^[a-z]+$")]
    inner: Inner
    more: dict[str, Inner] = {}
    words: Annotated[list[str], pydantic.Field(description="Words.", min_length=1)] = ["one"]
    either: dict[str, str | int] = {}
    key_env: Annotated[str, pydantic.Field(description="Its variable.", pattern="^[A-Z_]+$")] = "KEY"


GOOD: dict[str, Any] = {"name": "a", "inner": {"colour": "red"}}


def problems(**changes: object) -> list[tuple[str, str, str]]:
    raw = json.dumps({**GOOD, **changes}).encode()
    document = parse_yaml(raw, "f")
    with pytest.raises(pydantic.ValidationError) as caught:
        Outer.model_validate(document.data)
    return [(item.path, item.message, item.hint) for item in model_problems(caught.value, document, Outer)]


@pytest.mark.parametrize(
    ("changes", "path", "message", "hint"),
    [
        ({"name": 5}, "name", "must be a string, not the number 5", 'write "5"'),
        ({"name": 1.5}, "name", "1.5 without quotes is the number 1.5, not a string", 'write "1.5"'),
        ({"name": True}, "name", "must be a string, not true or false", ""),
        ({"name": None}, "name", "must be a string, not null", ""),
        ({"name": "A"}, "name", '"A" is not a valid name', 'write "a"'),
        ({"name": "a", "inner": []}, "inner", "must be a map, not a list", "write a map with keys such as colour"),
        ({"name": ["a"]}, "name", "must be a string, not a list", 'write "a"'),
        ({"inner": {}}, "inner.colour", 'the key "colour" is required', "The colour."),
        ({"inner": {"colour": "rde"}}, "inner.colour", 'unknown colour "rde"', 'did you mean "red"?'),
        ({"inner": {"colour": "red", "size": 0}}, "inner.size", "0 is below the minimum of 1", "write 1 or more"),
        ({"inner": {"colour": "red", "size": 10}}, "inner.size", "10 is above the maximum of 9", "write 9 or less"),
        ({"inner": {"colour": "red", "size": "3"}}, "inner.size", "must be an integer, not a string", "write 3"),
        ({"inner": {"colour": "red", "on": "yes"}}, "inner.on", "must be true or false, not a string", "write true"),
        ({"inner": {"colour": "red", "sise": 3}}, "inner.sise", 'unknown key "sise"', 'did you mean "size"?'),
        (
            {"inner": {"colour": "red", "x": 3}},
            "inner.x",
            'unknown key "x"',
            "known: colour, size, on, wait, limit_s, disk_gb",
        ),
        ({"inner": {"color": "red"}}, "inner.color", 'unknown key "color"', 'did you mean "colour"?'),
        (
            {"more": {"one": {"colour": "red", "sise": 3}}},
            "more.one.sise",
            'unknown key "sise"',
            'did you mean "size"?',
        ),
        ({"words": []}, "words", "must not be empty", "Words."),
        ({"words": ["a", 1]}, "words[1]", "must be a string, not the number 1", 'write "1"'),
        ({"words": "a"}, "words", "must be a list, not a string", 'write ["a"]'),
    ],
)
def test_words(changes: dict[str, object], path: str, message: str, hint: str) -> None:
    assert problems(**changes) == [(path, message, hint)]


@pytest.mark.parametrize(
    ("key", "given", "hint"),
    [
        ("wait", "6h", "write 360 (minutes)"),
        ("wait", "90s", "write 2 (minutes)"),
        ("wait", "90", "write 90 (minutes)"),
        ("wait", "1 day", "write 1440 (minutes)"),
        ("wait", "soon", ""),
        ("limit_s", "5m", "write 300 (seconds)"),
        ("disk_gb", "80GB", "write 80 (GB)"),
        ("size", "3 of them", "write 3"),
    ],
)
def test_a_hint_for_a_number_names_its_unit(key: str, given: str, hint: str) -> None:
    assert problems(inner={"colour": "red", key: given}) == [
        (f"inner.{key}", "must be an integer, not a string", hint),
    ]


def test_a_missing_key_is_left_to_the_misspelt_one() -> None:
    found = problems(inner={"colou": "red", "color": "red"})
    assert sorted(path for path, _, _ in found) == ["inner.color", "inner.colou"]
    assert sorted(path for path, _, _ in problems(inner={"x": "red"})) == ["inner.colour", "inner.x"]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://user:word@host/a", '"http://host/a" must not have a user, a query or a fragment'),
        ("https://host/a?sig=word", '"https://host/a" must not have a user, a query or a fragment'),
        ("http://host/a#word", '"http://host/a" must not have a user, a query or a fragment'),
        ("https://user:w@rd@host/a", '"https://host/a" must not have a user, a query or a fragment'),
        ("https://user:w/o?r#d@host/a", '"https://host/a" must not have a user, a query or a fragment'),
        ("a@B?c", '"a@B?c" is not a valid name'),
        ("B?" * 100, f'"{"B?" * 49}B… is not a valid name'),
    ],
)
def test_secrets_of_a_url_are_not_shown(given: str, shown: str) -> None:
    ((_, message, _),) = problems(name=given)
    assert message == shown


def test_a_secret_where_its_variable_is_to_be_named_is_not_shown() -> None:
    (told,) = problems(key_env="word~8Q")
    assert told == ("key_env", "this is not a valid name of an environment variable", "It must match ^[A-Z_]+$")


def test_what_no_member_of_a_union_takes_is_told_at_its_own_place() -> None:
    assert {path for path, _, _ in problems(either={"one": []})} == {"either.one"}


def test_problems_stand_below_a_place() -> None:
    document = parse_yaml(b"- inner:\n    colour: blue\n", "f")
    with pytest.raises(pydantic.ValidationError) as caught:
        Inner.model_validate(document.data[0]["inner"])
    (problem,) = model_problems(caught.value, document, Inner, (0, "inner"))
    assert (problem.path, problem.line) == ("[0].inner.colour", 2)


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ((), ["name", "inner", "more", "words", "either", "key_env"]),
        (("inner",), ["colour", "size", "on", "wait", "limit_s", "disk_gb"]),
        (("more", "anything"), ["colour", "size", "on", "wait", "limit_s", "disk_gb"]),
        (("inner", "colour"), []),
    ],
)
def test_known_keys(path: tuple[str, ...], keys: list[str]) -> None:
    assert known_keys(Outer, path) == keys


def test_nearest_is_silent_where_nothing_is_known() -> None:
    assert nearest("x", []) == ""


def test_long_names_are_compared_in_bounded_memory() -> None:
    # A whole table of their edits would have 190 kB.
    name, meant = "a" * 150, "a" * 149 + "b"
    tracemalloc.start()
    try:
        hint = nearest(name, [meant])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert hint.startswith("did you mean")
    assert peak < 100_000
