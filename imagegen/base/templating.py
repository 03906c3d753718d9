"""The only Jinja environment: sandboxed, strict about undefined names, and without access to anything else."""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

import jinja2
import jinja2.sandbox
from jinja2.environment import TemplateExpression

_WHOLE = re.compile(r"^\{\{((?:(?!\}\}).)*)\}\}$", re.DOTALL)
# Most expressions of steps only name a value, such as `kubernetes.version`. They are looked up, because Jinja would
# compile a Python module for each. The words at the beginning are Jinja's own.
_NAME = r"(?!(?:[nN]one|not|[tT]rue|[fF]alse|self)\b)[a-zA-Z]\w*(?:\.[a-zA-Z]\w*)*"
_PLAIN_NAME = re.compile(_NAME, re.ASCII)
_PLAIN_FIELD = re.compile(rf"\{{\{{ *({_NAME}) *\}}\}}", re.ASCII)


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
@lru_cache(maxsize=1024)
def _template(text: str) -> jinja2.Template:
    return _environment().from_string(text)


@lru_cache(maxsize=1024)
def _expression(text: str) -> TemplateExpression:
    return _environment().compile_expression(text, undefined_to_none=False)


@lru_cache(maxsize=1024)
def _plain_parts(template: str) -> tuple[str, ...]:
    """Text and names in turn, if a template has only fields that name a value. Otherwise nothing."""
    parts = _PLAIN_FIELD.split(template)
    # Jinja changes line ends, and an odd brace can belong to a mark.
    is_plain = not any("{" in text or "\r" in text for text in parts[::2])
    return tuple(parts) if is_plain else ()


def _look_up(name: str, context: Mapping[str, object]) -> Any:  # noqa: ANN401 - of the type that the value is
    """The value with this name, by the sandbox's rules. Its first part is in the context."""
    first, *rest = name.split(".")
    value: Any = context[first]
    for attribute in rest:
        value = _environment().getattr(value, attribute)
    return value


def render_text(template: str, context: Mapping[str, object]) -> str:
    """Render a template to text."""
    parts = _plain_parts(template)
    try:
        if parts and all(name.partition(".")[0] in context for name in parts[1::2]):
            return "".join(str(_look_up(part, context)) if at % 2 else part for at, part in enumerate(parts))
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
        if _PLAIN_NAME.fullmatch(expression) and expression.partition(".")[0] in context:
            result = _look_up(expression, context)
        else:
            result = _expression(expression)(context)
    except jinja2.TemplateError as error:
        raise _translated(error) from None
    if isinstance(result, jinja2.Undefined):
        raise UnknownNameError(f"{expression!r} is not defined")
    return result


def _translated(error: jinja2.TemplateError) -> TemplateError:
    kind = UnknownNameError if isinstance(error, jinja2.UndefinedError) else TemplateError
    return kind(" ".join(str(error).split()))
