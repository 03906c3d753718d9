"""A rule, or a feature that is not built yet, in; what `imagegen rules ID` tells of it, as text and as JSON, out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imagegen.rules.examples import example_of

if TYPE_CHECKING:
    from imagegen.judging import Rule
    from imagegen.rules.unimplemented import Feature


def rule_json(rule: Rule) -> dict[str, object]:
    """The rule with its example."""
    found = {"id": rule.id, "severity": rule.severity, "summary": rule.summary}
    return {**found, "why": rule.why or None, "example": example_of(rule).as_json()}


def rule_lines(rule: Rule, width: int) -> Iterator[str]:
    """What the rule demands and why, a config that breaks it, what is said of that, and the nearest fine one."""
    example = example_of(rule)
    yield f"{rule.id} ({rule.severity})"
    yield from _wrapped(f"{rule.summary}.", width)
    # The messages say why wherever the rule itself does not; nothing is said twice.
    reason = rule.why or example.says[0].message
    yield from ["", *_wrapped(f"Why: {reason}", width, "     ")]
    suppose = f" (if {example.supposes})" if example.supposes else ""
    yield from ["", f"This breaks it{suppose}:", ""]
    yield from _config(example.broken)
    yield ""
    for said in example.says:
        message = "" if said.message == reason else f": {said.message}"
        yield from _wrapped(f"{said.path}{message}", width, "    ", "  ")
        yield from _wrapped(f"hint: {said.hint}", width, "          ", "    ")
    yield from ["", "This does not:", ""]
    yield from _config(example.fine)


def feature_lines(name: str, feature: Feature, width: int) -> Iterator[str]:
    """What is not built yet, and which keys ask for it."""
    yield f"{name} (not implemented yet)"
    yield from _wrapped(f"imagegen does not do this yet: {feature['what']}.", width)
    yield from ["", *_wrapped("`imagegen validate` warns of these keys, and `imagegen plan` refuses them:", width)]
    for asked_by in feature["asked_by"]:
        values = f": {' or '.join(map(str, asked_by['values']))}" if "values" in asked_by else ""
        yield f"    {asked_by['path']}{values}"
    yield from (f"    overrides.{override}" for override in feature.get("overrides", {}))
    yield from ["", "  hint: leave them out"]


def _config(text: str) -> Iterator[str]:
    """A part of a config; not wrapped, because it is copied."""
    yield from (f"    {line}".rstrip() for line in text.splitlines())


def _wrapped(text: str, width: int, indent: str = "", first: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
