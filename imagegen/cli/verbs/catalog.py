"""`imagegen catalog`: the facts, each with its source."""

import ssl
from collections.abc import Iterable

import click

from imagegen.authenticode.root_list import read_preset_roots
from imagegen.catalog import facts, listing
from imagegen.cli import options
from imagegen.cli.output import print_as
from imagegen.cli.overrides import override_lines, overrides
from imagegen.cli.tables import check_known, columns, terminal_width


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
      imagegen catalog releases         the contents of published releases, and what is unconfirmed
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
