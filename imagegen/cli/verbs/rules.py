"""`imagegen rules`: the rules for configs, and one of them explained."""

import click

from imagegen.cli import options
from imagegen.cli.columns import check_known, columns, print_as, terminal_width
from imagegen.cli.rule_text import feature_lines, rule_json, rule_lines
from imagegen.rules.judge import all_rules
from imagegen.rules.unimplemented import RULE, AskedBy, features


@click.command()
@click.argument("identifier", metavar="[ID]", required=False)
@options.FORMAT
def rules(identifier: str | None, form: str) -> None:
    """List the rules for configs and the features that are not implemented yet, or explain one of them.

    A message of `imagegen validate` ends with the id of its rule. With an ID: what the rule demands and why,
    a config that breaks it, and the nearest config that does not.

    \b
      imagegen rules
      imagegen rules windows-release-refused
    """
    known, width = {rule.id: rule for rule in all_rules()}, terminal_width()
    unimplemented = {
        name: {"id": name, "severity": RULE, "summary": f"{item['what']}: {_asked_by(item['asked_by'])}"}
        for name, item in features().items()
    }
    if identifier in known:
        print_as([rule_json(known[identifier])], rule_lines(known[identifier], width), form)
    elif identifier in unimplemented:
        print_as([unimplemented[identifier]], feature_lines(identifier, features()[identifier], width), form)
    else:
        if identifier is not None:
            check_known("rule", identifier, [RULE, *known, *unimplemented])
        rows = [] if identifier else [(rule.id, rule.severity, rule.summary) for rule in known.values()]
        lines = [
            *columns(rows, width),
            *([""] if rows else []),
            "Not implemented yet, and rejected by `imagegen plan`:",
        ]
        lines += columns([(row["id"], row["summary"]) for row in unimplemented.values()], width)
        shown = [{"id": name, "severity": severity, "summary": summary} for name, severity, summary in rows]
        print_as([*shown, *unimplemented.values()], lines, form)


def _asked_by(paths: list[AskedBy]) -> str:
    """The keys that ask for something, with the values that do where not every one does."""
    asking_keys = []
    for item in paths:
        values = f" ({', '.join(map(str, item['values']))})" if "values" in item else ""
        asking_keys.append(f"{item['path']}{values}")
    return ", ".join(asking_keys)
