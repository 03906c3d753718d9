"""Templates are sandboxed, and what is not defined is an error that says so."""

from __future__ import annotations

import dataclasses

import pytest

from imagegen.base.templating import TemplateError, UnknownNameError, evaluate, render_text, render_value


@dataclasses.dataclass(frozen=True)
class _Facts:
    size: int = 3
    _hidden: str = "x"


CONTEXT: dict[str, object] = {
    "facts": _Facts(),
    "kubernetes": {"version": "1.36.4", "items": "a key", "deep": {"er": ["x"]}},
    "number": 7,
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [(" kubernetes.deep.er ", ["x"]), ("kubernetes.version", "1.36.4"), ("facts.size", 3), ("number + 1", 8)],
)
def test_an_expression_keeps_its_type(expression: str, value: object) -> None:
    assert evaluate(expression, CONTEXT) == value
    assert render_value({"a": [f"{{{{{expression}}}}}", 1]}, CONTEXT) == {"a": [value, 1]}


@pytest.mark.parametrize("name", ["missing", "missing.more", "kubernetes.missing", "facts.missing"])
def test_an_undefined_name_is_an_error(name: str) -> None:
    with pytest.raises(UnknownNameError):
        evaluate(name, CONTEXT)
    with pytest.raises(UnknownNameError):
        render_text(f"<{{{{ {name} }}}}>", CONTEXT)


@pytest.mark.parametrize("name", ["facts._hidden", "facts.__class__", "facts.__class__.__mro__"])
def test_the_inside_of_a_value_cannot_be_reached(name: str) -> None:
    with pytest.raises(TemplateError):
        render_text(f"{{{{ {name} }}}}", CONTEXT)


@pytest.mark.parametrize("text", ["{{ number", "{{ number. }}", "{% raw %}{{ number }}", "{{ kubernetes version }}"])
def test_what_is_no_template_is_an_error(text: str) -> None:
    with pytest.raises(TemplateError):
        render_text(text, CONTEXT)


def test_a_text_has_its_fields_filled_in() -> None:
    assert render_text('"{{ kubernetes.version }}\\{{ number }}.exe"', CONTEXT) == '"1.36.4\\7.exe"'
