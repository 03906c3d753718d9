"""`imagegen explain`: where every value comes from."""

from pathlib import Path

import click

from imagegen import loading
from imagegen.cli import options
from imagegen.cli.columns import print_as, terminal_width
from imagegen.cli.configs import config_request, load_config
from imagegen.explain import explain as explaining
from imagegen.explain.text import explanation_json, explanation_text


@click.command()
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
      imagegen explain image.yaml steps.containerd --target prod
    """
    loaded = load_config(config_request(config, sets))
    specs = [loaded.specs[name] for name in loading.find_targets(loaded, target)]
    explanation = explaining.explain(specs, loaded.steps)
    if path is not None:
        explanation = explaining.narrow(explanation, path)
    print_as(explanation_json(explanation), [explanation_text(explanation, terminal_width())], form)
