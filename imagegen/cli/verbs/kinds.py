"""`imagegen kinds`: the kinds of resource that steps are made of."""

import dataclasses

import click

from imagegen.cli import options
from imagegen.cli.output import print_as
from imagegen.cli.tables import check_known, columns, terminal_width
from imagegen.plan import loading
from imagegen.steps.describe import describe_kind, kind_lines, summary_of
from imagegen.steps.kinds import KINDS


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
