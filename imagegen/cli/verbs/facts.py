"""`imagegen catalog`, `rules`, `steps`, `kinds` and `schema`: what imagegen knows before it reads a config."""

import dataclasses
import ssl
import textwrap
from collections.abc import Iterable, Iterator

import click

from imagegen.authenticode.trust import read_preset_roots
from imagegen.catalog import facts, listing
from imagegen.cli import options
from imagegen.cli.inspection import known_facts, override_lines, overrides
from imagegen.cli.options import check_known, columns, terminal_width
from imagegen.cli.output import print_as
from imagegen.config.reference import reference_text
from imagegen.config.schema import config_schema, schema_text
from imagegen.plan import loading
from imagegen.plan.context import order_steps
from imagegen.rules.examples import example_of
from imagegen.rules.judge import all_rules
from imagegen.rules.rule import Rule
from imagegen.rules.unimplemented import RULE, AskedBy, Feature, features
from imagegen.steps.describe import describe_kind, describe_step, kind_lines, step_lines, summary_of
from imagegen.steps.kinds import KINDS


@click.command()
@click.argument("table", required=False)
@options.FORMAT
def catalog(table: str | None, form: str) -> None:
    """Show what imagegen knows about versions, releases and clouds, with the source and date of each fact.

    Without TABLE, list the tables.

    \b
      imagegen catalog kubernetes
      imagegen catalog overrides        names that replace artifacts by your own
      imagegen catalog image-builder    the key for each variable of image-builder
      imagegen catalog preset-roots     Microsoft's roots as PEM, for artifacts.signatures.roots
      imagegen catalog faults           the faults that a rehearsal can cause
      imagegen catalog products         what steps download: addresses, contents, licences, signers
    """
    width = terminal_width()
    titles = {name: facts.table(name)["title"] for name in listing.tables()} | {
        "overrides": "The names by which a config replaces artifacts, and the public addresses that they replace",
        "preset-roots": "The root certificates of the presets `microsoft` and `kubernetes`, in PEM",
        "faults": "The faults that `imagegen build --rehearse --fault NAME` causes, their clouds and exit codes",
    }
    shown: object = titles
    lines: Iterable[str] = columns(list(titles.items()), width)
    if table == "overrides":
        found = overrides()
        shown = {name: [artifact.as_json() for artifact in artifacts] for name, artifacts in found.items()}
        lines = override_lines(found, width)
    elif table == "preset-roots":
        roots = {str(root.subject): ssl.DER_cert_to_PEM_cert(root.der) for root in read_preset_roots()}
        shown, lines = roots, [line for name, pem in roots.items() for line in (f"# {name}", *pem.splitlines())]
    elif table == "faults":
        from imagegen.rehearsal.faults.table import FAULTS

        faults = {
            name: {"clouds": ", ".join(fault.clouds), "exit code": str(int(fault.exit_code)), "what": fault.description}
            for name, fault in FAULTS.items()
        }
        shown, lines = faults, columns([(name, *row.values()) for name, row in faults.items()], width)
    elif table is not None:
        check_known("table", table, list(titles), "catalog")
        shown, lines = facts.table(table), listing.describe(table, width)
    print_as(form, shown, lines)


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


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@options.FORMAT
def steps(name: str | None, form: str) -> None:
    """List the steps that make an image, or describe one of them.

    With a NAME: the keys of the config and the facts that the step reads, its artifacts, and each resource that it
    puts on the machine, with the reason.

    \b
      imagegen steps
      imagegen steps containerd

    `imagegen explain CONFIG steps` tells why a step is in the plan of a config, also for your own steps.
    """
    known, width = loading.load_steps(), terminal_width()
    if name is None:
        rows = [(step, known[step].meta.summary) for step in order_steps(known)]
        print_as(form, dict(rows), columns(rows, width))
        return
    check_known("step", name, list(known), "steps")
    described = describe_step(known[name])
    print_as(form, dataclasses.asdict(described), step_lines(described, width))


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@options.FORMAT
def kinds(name: str | None, form: str) -> None:
    """List the kinds of resource that steps are made of, or describe one of them.

    With a NAME: its fields, and an example from a shipped step. Your own steps (`steps_path`) use the same kinds.

    \b
      imagegen kinds
      imagegen kinds service
    """
    width = terminal_width()
    if name is None:
        rows = [(kind, summary_of(model)) for kind, model in sorted(KINDS.items())]
        print_as(form, dict(rows), columns(rows, width))
        return
    check_known("kind", name, list(KINDS), "kinds")
    described = describe_kind(name, loading.load_steps())
    print_as(form, dataclasses.asdict(described), kind_lines(described, width))


@click.command()
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
    For an editor to complete and check configs, put the schema beside them:
      imagegen schema > configs/imagegen.schema.json
    and begin each config with the line
      # yaml-language-server: $schema=imagegen.schema.json

    The schema has one keyword that is not in the standard, but that editors read. A strict ajv accepts the schema
    with `keywords: ["patternErrorMessage"]`.
    """
    known = known_facts()
    click.echo(reference_text(known) if form == "yaml" else schema_text(config_schema(known)), nl=False)
