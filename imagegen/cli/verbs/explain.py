"""`imagegen explain`: where every value comes from."""

from pathlib import Path

import click

from imagegen.cli import options
from imagegen.cli.output import print_as
from imagegen.cli.tables import terminal_width
from imagegen.plan import loading
from imagegen.plan.explain import explain as explain_specs
from imagegen.plan.explain import explanation_json, explanation_lines, narrow


@click.command()
@options.CONFIG
@click.argument("path", required=False)
@options.TARGETS
@options.SET
@options.FORMAT
def explain(config: Path, path: str | None, target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Show where every value comes from, and why each step is in the plan.

    A value comes from a line of a config, from --set, from the catalogue (with its source), or is a default.

    \b
    PATH is a key, a section, `facts`, or `steps`. Only its values are shown:
      imagegen explain image.yaml
      imagegen explain image.yaml kubernetes.pause_image
      imagegen explain image.yaml steps.containerd --target prod
    """
    loaded = options.load_config(config, sets)
    specs = [loaded.specs[name] for name in loading.find_targets(loaded, target)]
    explanation = explain_specs(specs, loaded.steps)
    if path is not None:
        explanation = narrow(explanation, path)
    print_as(form, explanation_json(explanation), explanation_lines(explanation, terminal_width()))
