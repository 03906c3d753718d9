"""Templates that only name values are evaluated without Jinja: with the same result, and the same error."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

import pytest

from imagegen.base import templating
from imagegen.base.templating import TemplateError, evaluate, render_text

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class _Facts:
    size: int = 3
    _hidden: str = "x"


CONTEXT: dict[str, object] = {
    "facts": _Facts(),
    "kubernetes": {"version": "1.36.4", "items": "a key", "if": 1, "deep": {"er": ["x"]}, "nothing": None},
    "nothing": None,
    "number": 7,
    "true_name": "ours",
    "not_one": "ours",
    "true": "never ours",
    "not": "never ours",
    "self": "never ours",
}
NAMES = [
    *("kubernetes.version", "kubernetes.deep.er", "kubernetes.if", "kubernetes.nothing", "nothing", "number"),
    *("facts.size", "facts._hidden", "facts.missing", "facts.__class__", "facts.__class__.__mro__", "missing"),
    *("missing.more", "kubernetes.missing", "kubernetes.missing.more", "nothing.more", "number.real", "true_name"),
    *("not_one", "true", "True", "none", "None", "false", "not", "self.x", "number.", "kubernetes..version"),
    *("kubernetes.deep.er.0", "ñ", "1number", "kubernetes version", "number\n", "kubernetes.version | upper"),
]
TEXTS = [
    *(
        "no field",
        "",
        "line\n",
        "{{number}}",
        "{{   number   }}\n",
        "a {{ number }}{{ facts.size }} b",
        "{{\nnumber }}",
    ),
    *(
        "{ {{ number }} }",
        "{{{ number }}}",
        "{{ number }}}",
        "{{- number }}",
        " {{ number -}} ",
        "{% raw %}{{ number }}",
    ),
    *(
        "{% if number %}{{ number }}{% endif %}\n",
        "{# {{ number }} #}",
        "a\r\nb",
        "a\r{{ number }}",
        "{{ number",
        "}}",
        "{{ self }}",
    ),
    *("{{ number }} {{ missing }}", "{{ missing }} {{ facts._hidden }}", "{{ '{{ number }}' }}", "${number} %{number}"),
]


def outcome(function: Callable[[], object]) -> object:
    try:
        result = function()
    except TemplateError as error:
        return type(error), str(error)
    return type(result), result


@pytest.mark.parametrize("name", NAMES)
def test_a_name_has_the_value_that_jinja_gives(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    ours = outcome(lambda: evaluate(name, CONTEXT))
    monkeypatch.setattr(templating, "_PLAIN_NAME", re.compile("(?!)"))
    assert ours == outcome(lambda: evaluate(name, CONTEXT))


@pytest.mark.parametrize("text", [*TEXTS, *(f"<{{{{ {name} }}}}>" for name in NAMES)])
def test_a_text_is_what_jinja_makes_of_it(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    ours = outcome(lambda: render_text(text, CONTEXT))
    monkeypatch.setattr(templating, "_plain_parts", lambda _template: ())
    assert ours == outcome(lambda: render_text(text, CONTEXT))


def test_what_only_names_values_needs_no_jinja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templating, "_template", None)
    monkeypatch.setattr(templating, "_expression", None)
    assert render_text('"{{ kubernetes.version }}\\{{ number }}.exe"', CONTEXT) == '"1.36.4\\7.exe"'
    assert evaluate(" kubernetes.deep.er ", CONTEXT) == ["x"]
