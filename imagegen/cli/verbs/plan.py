"""`imagegen plan`: what will be on the machine."""

from pathlib import Path

import click

from imagegen import pipeline
from imagegen.cli import asking, options
from imagegen.cli.configs import config_request, load_config
from imagegen.cli.show import plan_text, print_json


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.REHEARSED_LOCK
@options.FORMAT
def plan(
    config: Path, target: str | None, sets: tuple[str, ...], lock_file: Path | None, rehearse: bool, form: str
) -> None:
    """Show what will be on the machine: phases, steps and every resource with its final values.

    \b
    It needs a lock, and the lock an account. Without one:
      imagegen plan image.yaml --target prod --rehearse
    """
    request = config_request(config, sets)
    chosen = asking.choose_target(load_config(request), target)
    lock = asking.lock_for(request, chosen, lock_file, rehearse=rehearse)
    decision = pipeline.decide(chosen, lock)
    if form == "json":
        print_json(decision.plan.as_json())
    else:
        click.echo(plan_text(decision.plan))
