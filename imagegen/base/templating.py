"""The only Jinja environment: sandboxed, strict about undefined names, and without access to anything else."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import jinja2
import jinja2.sandbox
from jinja2.environment import TemplateExpression

_WHOLE = re.compile(r"^\{\{((?:(?!\}\}).)*)\}\}$", re.DOTALL)


class TemplateError(Exception):
    """A template cannot be evaluated. The message says why in one line."""


class UnknownNameError(TemplateError):
    """A template uses an undefined name."""


def _block_name(value: object) -> str:
    """A name that is safe in HCL: a lower-case letter, then letters, digits, dashes and underscores."""
    text = str(value)
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", text):
        raise TemplateError(f"{text!r} is not a valid block name")
    return text


def _hcl_string(value: object) -> str:
    """A literal HCL string: in quotes, and without HCL's template marks."""
    text = str(value)
    if not re.fullmatch(r"[ -~]*", text) or "${" in text or "%{" in text:
        raise TemplateError(f"{text!r} is not a valid literal string")
    return json.dumps(text)


def _folders(paths: Iterable[str]) -> list[str]:
    """The folders of these paths on the machine, each once, without the roots of drives."""
    folders: dict[str, str] = {}
    for folder in (path.rpartition("\\")[0] for path in paths):
        folders.setdefault(folder.lower(), folder)
    return [folder for folder in folders.values() if "\\" in folder]


def _regex(value: object) -> str:
    """A regular expression for this text."""
    return re.escape(str(value))


@cache
def _environment() -> jinja2.sandbox.SandboxedEnvironment:
    # autoescape is for HTML. These templates are HCL, TOML and configuration files.
    environment = jinja2.sandbox.SandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters = {
        name: environment.filters[name]
        for name in ("default", "join", "length", "lower", "map", "replace", "sort", "upper")
    } | {"block_name": _block_name, "folders": _folders, "hcl_string": _hcl_string, "regex": _regex}
    environment.globals = {}
    return environment


# Cached, because one run evaluates the same texts for the lock, the plan and each target.
@cache
def _template(text: str) -> jinja2.Template:
    return _environment().from_string(text)


@cache
def _expression(text: str) -> TemplateExpression:
    return _environment().compile_expression(text, undefined_to_none=False)


def render_text(template: str, context: Mapping[str, object]) -> str:
    """Render a template to text."""
    try:
        return _template(template).render(context)
    except jinja2.TemplateError as error:
        raise _translated(error) from None


def render_value(value: object, context: Mapping[str, object]) -> Any:  # noqa: ANN401 - of the type that the value is
    """Render the strings in a value of a data file. A string that is one expression keeps the expression's type."""
    if isinstance(value, dict):
        return {key: render_value(item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [render_value(item, context) for item in value]
    if not isinstance(value, str) or "{" not in value:
        return value
    whole = _WHOLE.match(value)
    return evaluate(whole.group(1), context) if whole else render_text(value, context)


def evaluate(expression: str, context: Mapping[str, object]) -> Any:  # noqa: ANN401 - an expression may be of any type
    """The value of one expression. An undefined value is an error."""
    expression = expression.strip()
    try:
        result = _expression(expression)(context)
    except jinja2.TemplateError as error:
        raise _translated(error) from None
    if isinstance(result, jinja2.Undefined):
        raise UnknownNameError(f"{expression!r} is not defined")
    return result


def _translated(error: jinja2.TemplateError) -> TemplateError:
    kind = UnknownNameError if isinstance(error, jinja2.UndefinedError) else TemplateError
    return kind(" ".join(str(error).split()))
