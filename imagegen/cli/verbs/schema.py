"""`imagegen schema`: every key of a config, for editors and for people."""

import click

from imagegen.cli.overrides import known_facts
from imagegen.config.reference import reference_text
from imagegen.config.schema import config_schema, schema_text


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
