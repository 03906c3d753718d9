"""The verbs that teach: each shows what there is to know before anything is built, and touches no cloud."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagegen.cli import asking, options
from imagegen.cli.telling import voice
from imagegen.lines import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# A terminal that is narrower would break words; one that is wider is not easier to read.
_NARROWEST, _WIDEST = 60, 100
_OVERRIDES = "overrides"
_FAULTS = "faults"


@click.command(short_help="Write a first config.")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--name", help="The image's name; also the file's when FILE is left out.")
@click.option("--release", help="The Windows release: `imagegen catalog windows` lists them.")
@click.option("--kubernetes", metavar="VERSION", help="The Kubernetes version, for example 1.36.2.")
@click.option("--containerd", metavar="VERSION", help="The containerd version, for example 2.3.4.")
@click.option(
    "--target", "targets", multiple=True, type=click.Choice(["aws", "azure"]), help="A cloud; may be repeated."
)
@click.option("--allow-cidr", multiple=True, metavar="CIDR", help="A network that Packer comes from; may be repeated.")
@click.option("--region", help="AWS: the region to build in.")
@click.option("--location", help="Azure: the region to build in.")
@click.option("--gallery-resource-group", metavar="NAME", help="Azure: the resource group of the gallery.")
@click.option("--gallery", metavar="NAME", help="Azure: the Compute Gallery.")
@click.option("--definition", metavar="NAME", help="Azure: the image definition.")
@click.option("--allow-eol", is_flag=True, help="Accept versions that no longer receive security fixes.")
@click.option("--no-schema", is_flag=True, help="Do not write the JSON Schema for editors beside the config.")
@click.option("--force", is_flag=True, help="Replace an existing config.")
def init(file: Path | None, force: bool, no_schema: bool, **given: Any) -> None:  # noqa: ANN401 - the flags, by the name of their question
    """Write a first config, with comments, to FILE (<name>.yaml by default).

    Asks for what no flag says. Without a terminal it takes the defaults, and lists the missing flags that have none.
    The JSON Schema is written beside the config, so that an editor completes and checks it.

    \b
    For one cloud, without questions:
      imagegen init --target aws --region us-east-1 --allow-cidr 198.51.100.7/32
    """
    import shlex

    from imagegen.cli.show import problem_text
    from imagegen.cli.starting import answers_to, file_of, refuse_existing, write_starter
    from imagegen.config.starter import complaint

    given["force"] = force
    if file is not None:
        refuse_existing(file, force=force)
        given |= {"file": file, "file_name": "" if complaint("name", file.stem) else file.stem}
    elif given["name"]:
        refuse_existing(file_of(given["name"]), force=force)
    terminal = sys.stdin.isatty()
    today = asking.today()
    answers = answers_to(given, terminal=terminal, today=today)
    file = file or file_of(answers.name)
    written = write_starter(answers, file, force=force, with_schema=not no_schema, terminal=terminal, today=today)
    for problem in written.warnings:
        voice().tell(problem_text(problem))
    lines = [f"wrote {file}, which validates"]
    if written.schema:
        lines.append(f"wrote {written.schema}, by which editors complete and check it")
    click.echo(joined([*lines, f"next: imagegen lock {shlex.quote(str(file))}"]))


@click.command(short_help="Show where every value comes from.")
@options.CONFIG
@click.argument("path", required=False)
@click.option("--target", metavar="NAME", help="Only this target; all of the config's by default.")
@options.SET
@options.FORMAT
def explain(config: Path, path: str | None, target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Show where every value comes from, and why each step is in the plan.

    A value is a default, the catalogue's (with the source behind it), a line of a file, or said by --set.

    \b
    PATH narrows it to a key, a section, `facts`, or `steps`:
      imagegen explain image.yaml
      imagegen explain image.yaml kubernetes.pause_image
      imagegen explain image.yaml steps.containerd --target aws
    """
    from imagegen import pipeline
    from imagegen.explain import explain as explaining
    from imagegen.explain.text import explanation_json, explanation_text

    loaded = asking.loaded(asking.asked(config, sets))
    if target is not None:
        pipeline.check_target(loaded, target)
    targets = [target] if target else list(loaded.config.targets.named())
    explanation = explaining.explain([loaded.specs[name] for name in targets], loaded.steps)
    if path is not None:
        explanation = explaining.narrowed(explanation, path)
    _print(explanation_json(explanation), [explanation_text(explanation, _width())], form)


@click.command(short_help="Print the JSON Schema of a config.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "yaml"]),
    default="json",
    show_default=True,
    help="json: a JSON Schema, for editors; yaml: a commented config with every key, for people.",
)
def schema(form: str) -> None:
    """Print the JSON Schema of a config, or an example that shows every key.

    \b
    To have an editor complete and check configs, keep the schema beside them:
      imagegen schema > configs/imagegen.schema.json
    and begin each config with the line
      # yaml-language-server: $schema=imagegen.schema.json

    The schema has one keyword beyond the standard, which editors read. A strict ajv takes the schema with
    `keywords: ["patternErrorMessage"]`.
    """
    from imagegen.cli.overrides import known_words
    from imagegen.config.reference import reference_text
    from imagegen.config.schema import config_schema, schema_text

    known = known_words()
    click.echo(reference_text(known) if form == "yaml" else schema_text(config_schema(known)), nl=False)


@click.command(short_help="Show the known versions, releases and overrides.")
@click.argument("table", required=False)
@options.FORMAT
def catalog(table: str | None, form: str) -> None:
    """Show what imagegen knows about versions, releases and clouds, with the source and date of each fact.

    Without TABLE the tables are listed.

    \b
      imagegen catalog kubernetes
      imagegen catalog overrides        names that replace artifacts by your own
      imagegen catalog image-builder    which key stands for which variable there
      imagegen catalog faults           what a rehearsal can make go wrong
      imagegen catalog releases         what published releases hold, and what of it is unconfirmed
    """
    from imagegen.catalog import facts, listing
    from imagegen.cli.overrides import override_lines, overrides
    from imagegen.cli.rehearsing import listed_faults

    titles = {name: facts.table(name)["title"] for name in listing.tables()}
    titles[_OVERRIDES] = "The names by which a config replaces artifacts, and the public addresses that they replace"
    titles[_FAULTS] = "What `imagegen build --rehearse --fault NAME` makes go wrong, on which cloud, and the exit code"
    if table is None:
        shown: Any = titles
        lines = list(_columns(list(titles.items()), _width()))
    elif table == _OVERRIDES:
        found = overrides()
        shown = {name: [moved.as_json() for moved in items] for name, items in found.items()}
        lines = list(override_lines(found, _width()))
    elif table == _FAULTS:
        shown = listed_faults()
        lines = list(_columns([(name, *row.values()) for name, row in shown.items()], _width()))
    else:
        _check_known("table", table, list(titles))
        shown, lines = facts.table(table), listing.describe(table, _width())
    _print(shown, lines, form)


@click.command(short_help="List the rules, or explain one.")
@click.argument("identifier", metavar="[ID]", required=False)
@options.FORMAT
def rules(identifier: str | None, form: str) -> None:
    """List the rules for configs and the features that are not built yet, or explain one of them.

    A message of `imagegen validate` ends with the id of its rule. With an ID: what the rule demands and why,
    a config that breaks it, and the nearest config that does not.

    \b
      imagegen rules
      imagegen rules windows-release-refused
    """
    from imagegen.cli.rule_text import feature_lines, rule_json, rule_lines
    from imagegen.rules.awaited import RULE, features
    from imagegen.rules.judge import RULES

    known = {rule.id: rule for rule in RULES}
    awaited = {
        name: {"id": name, "severity": RULE, "summary": f"{item['what']}: {_asked_by(item['asked_by'])}"}
        for name, item in features().items()
    }
    if identifier in known:
        _print([rule_json(known[identifier])], rule_lines(known[identifier], _width()), form)
    elif identifier in awaited:
        _print([awaited[identifier]], feature_lines(identifier, features()[identifier], _width()), form)
    else:
        if identifier is not None:
            _check_known("rule", identifier, [RULE, *known, *awaited])
        rows = [] if identifier else [(rule.id, rule.severity, rule.summary) for rule in RULES]
        lines = [*_columns(rows, _width()), *([""] if rows else []), "Not built yet, and refused by `imagegen plan`:"]
        lines += _columns([(row["id"], row["summary"]) for row in awaited.values()], _width())
        shown = [{"id": name, "severity": severity, "summary": summary} for name, severity, summary in rows]
        _print([*shown, *awaited.values()], lines, form)


def _asked_by(paths: list[dict[str, Any]]) -> str:
    """The keys that ask for something, with the values that do where not every one does."""
    asking_keys = []
    for item in paths:
        values = f" ({', '.join(map(str, item['values']))})" if "values" in item else ""
        asking_keys.append(f"{item['path']}{values}")
    return ", ".join(asking_keys)


def _check_known(what: str, name: str, known: list[str]) -> None:
    if name in known:
        return
    import difflib

    from imagegen.documents.problems import nearest
    from imagegen.errors import ConfigError

    # The whole list is a verb of its own: only what is near is worth a hint.
    close = difflib.get_close_matches(name, known, n=1)
    listed_by = f"`imagegen {'catalog' if what == 'table' else 'rules'}` lists them"
    raise ConfigError(f"there is no {what} {name!r}", hint=nearest(name, close) if close else listed_by)


def _print(shown: Any, lines: Iterable[str], form: str) -> None:  # noqa: ANN401 - any value that JSON has
    from imagegen.cli.show import print_json

    if form == "json":
        print_json(shown)
    else:
        click.echo(joined(line for text in lines for line in text.split("\n")))


def _columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Aligned columns, of which the last wraps."""
    import textwrap

    if not rows:
        return
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for *cells, text in rows:
        lead = "".join(f"{cell:<{room}}  " for cell, room in zip(cells, widths, strict=True))
        yield from textwrap.wrap(
            text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )


def _width() -> int:
    import shutil

    return min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
