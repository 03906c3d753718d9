"""`imagegen steps`: what each step does on the machine."""

import dataclasses

import click

from imagegen.cli import options
from imagegen.cli.output import print_as
from imagegen.cli.tables import check_known, columns, terminal_width
from imagegen.plan import loading
from imagegen.plan.context import order_steps
from imagegen.steps.describe import describe_step, step_lines


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
