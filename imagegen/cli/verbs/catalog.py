"""`imagegen catalog`: the facts, each with its source."""

from typing import Any

import click

from imagegen.catalog import facts, listing
from imagegen.cli import options
from imagegen.cli.columns import check_known, columns, print_as, terminal_width
from imagegen.cli.overrides import override_lines, overrides
from imagegen.cli.rehearsing import listed_faults

_OVERRIDES = "overrides"
_FAULTS = "faults"


@click.command()
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
    titles = {name: facts.table(name)["title"] for name in listing.tables()}
    titles[_OVERRIDES] = "The names by which a config replaces artifacts, and the public addresses that they replace"
    titles[_FAULTS] = "What `imagegen build --rehearse --fault NAME` makes go wrong, on which cloud, and the exit code"
    if table is None:
        shown: Any = titles
        lines = list(columns(list(titles.items()), terminal_width()))
    elif table == _OVERRIDES:
        found = overrides()
        shown = {name: [moved.as_json() for moved in items] for name, items in found.items()}
        lines = list(override_lines(found, terminal_width()))
    elif table == _FAULTS:
        shown = listed_faults()
        lines = list(columns([(name, *row.values()) for name, row in shown.items()], terminal_width()))
    else:
        check_known("table", table, list(titles))
        shown, lines = facts.table(table), listing.describe(table, terminal_width())
    print_as(shown, lines, form)
