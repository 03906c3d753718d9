"""`imagegen rules`: the rules for configs, the features that are not implemented yet, and one of them explained."""

import textwrap
from collections.abc import Iterator

import click

from imagegen.cli import options
from imagegen.cli.output import print_as
from imagegen.cli.tables import check_known, columns, terminal_width
from imagegen.rules.examples import example_of
from imagegen.rules.judge import all_rules
from imagegen.rules.rule import Rule
from imagegen.rules.unimplemented import RULE, AskedBy, Feature, features


@click.command()
@click.argument("identifier", metavar="[ID]", required=False)
@options.FORMAT
def rules(identifier: str | None, form: str) -> None:
    """List the rules for configs and the features that are not implemented yet, or explain one of them.

    A message of `imagegen validate` ends with the id of its rule. With an ID: the requirement and its reason,
    a config that breaks the rule, and the most similar config that does not.

    \b
      imagegen rules
      imagegen rules windows-release-known
    """
    known, missing, width = {rule.id: rule for rule in all_rules()}, features(), terminal_width()
    unimplemented = {
        name: {"id": name, "severity": RULE, "summary": f"{item['what']}: {', '.join(map(_key, item['asked_by']))}"}
        for name, item in missing.items()
    }
    if identifier in known:
        rule = known[identifier]
        shown = {**_rule_json(rule), "why": rule.why or None, "example": example_of(rule.id).as_json()}
        print_as(form, [shown], rule_lines(rule, width))
    elif identifier in unimplemented:
        print_as(form, [unimplemented[identifier]], _feature_lines(identifier, missing[identifier], width))
    else:
        if identifier is not None:
            check_known("rule", identifier, [RULE, *known, *unimplemented], "rules")
        listed = [] if identifier else [_rule_json(rule) for rule in known.values()]
        lines = [
            *columns([tuple(row.values()) for row in listed], width),
            *([""] if listed else []),
            "Not implemented yet, and rejected by `imagegen plan`:",
            *columns([(row["id"], row["summary"]) for row in unimplemented.values()], width),
        ]
        print_as(form, [*listed, *unimplemented.values()], lines)


def _rule_json(rule: Rule) -> dict[str, str]:
    return {"id": rule.id, "severity": rule.severity, "summary": rule.summary}


def rule_lines(rule: Rule, width: int) -> Iterator[str]:
    """The requirement and its reason, a config that breaks the rule, its messages, and the most similar valid one."""
    example = example_of(rule.id)
    yield f"{rule.id} ({rule.severity})"
    yield from _wrapped(f"{rule.summary}.", width)
    # If the rule has no reason of its own, its messages give it. It is not repeated below.
    reason = rule.why or example.says[0].message
    yield from ["", *_wrapped(f"Why: {reason}", width, "     ")]
    assumption = f" (if {example.supposes})" if example.supposes else ""
    yield from ["", f"This breaks it{assumption}:", "", *_config_lines(example.broken), ""]
    for problem in example.says:
        message = "" if problem.message == reason else f": {problem.message}"
        yield from _wrapped(f"{problem.path}{message}", width, "    ", "  ")
        yield from _wrapped(f"hint: {problem.hint}", width, "          ", "    ")
    yield from ["", "This does not:", "", *_config_lines(example.fine)]


def _feature_lines(name: str, feature: Feature, width: int) -> Iterator[str]:
    """A feature that is not implemented yet, and the keys that need it."""
    yield f"{name} (not implemented yet)"
    yield from _wrapped(f"imagegen does not do this yet: {feature['what']}.", width)
    yield from ["", *_wrapped("`imagegen validate` warns of these keys, and `imagegen plan` refuses them:", width)]
    for asked_by in feature["asked_by"]:
        values = f": {' or '.join(asked_by['values'])}" if "values" in asked_by else ""
        yield f"    {asked_by['path']}{values}"
    yield from ["", "  hint: leave them out"]


def _key(asked_by: AskedBy) -> str:
    """A key that needs a feature, with the values that need it if not all do."""
    return asked_by["path"] + (f" ({', '.join(asked_by['values'])})" if "values" in asked_by else "")


def _config_lines(text: str) -> list[str]:
    # Not wrapped, so that it can be copied.
    return [f"    {line}".rstrip() for line in text.splitlines()]


def _wrapped(text: str, width: int, indent: str = "", first: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
