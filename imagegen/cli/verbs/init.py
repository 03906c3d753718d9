"""`imagegen init`: writes a first config."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from imagegen.cli.configs import today
from imagegen.cli.show import problem_text
from imagegen.cli.starting import answers_to, file_of, refuse_existing, write_starter
from imagegen.cli.telling import voice
from imagegen.config.starter import find_problem
from imagegen.lines import joined
from imagegen.providers.questions import all_questions


def _cloud_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each question of a cloud."""
    questions = [question for cloud in all_questions().values() for question in cloud.questions]
    for question in reversed(questions):
        command = click.option(question.option, metavar=question.metavar, help=question.help)(command)
    return command


def _example() -> str:
    cloud, asked = next(iter(all_questions().items()))
    answers = [f"{question.option} {question.example}" for question in asked.questions]
    return f"imagegen init --target {cloud} {' '.join(answers)} --allow-cidr 198.51.100.7/32"


_HELP = f"""Write a first config, with comments, to FILE (<name>.yaml by default).

Asks for what no flag says. Without a terminal it takes the defaults, and lists the missing flags that have none.
The JSON Schema is written beside the config, so that an editor completes and checks it.

\b
For one cloud, without questions:
  {_example()}
"""


@click.command(help=_HELP)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--name", help="The image's name; also the file's when FILE is left out.")
@click.option("--release", help="The Windows release: `imagegen catalog windows` lists them.")
@click.option("--kubernetes", metavar="VERSION", help="The Kubernetes version, for example 1.36.2.")
@click.option("--containerd", metavar="VERSION", help="The containerd version, for example 2.3.4.")
@click.option(
    "--target", "targets", multiple=True, type=click.Choice(list(all_questions())), help="A cloud; may be repeated."
)
@click.option("--allow-cidr", multiple=True, metavar="CIDR", help="A network that Packer comes from; may be repeated.")
@_cloud_options
@click.option("--allow-eol", is_flag=True, help="Accept versions that no longer receive security fixes.")
@click.option("--no-schema", is_flag=True, help="Do not write the JSON Schema for editors beside the config.")
@click.option("--force", is_flag=True, help="Replace an existing config.")
def init(file: Path | None, force: bool, no_schema: bool, **given: Any) -> None:  # noqa: ANN401 - the flags, by the name of their question
    """Writes a first config, and says what it wrote."""
    given["force"] = force
    if file is not None:
        refuse_existing(file, force=force)
        given |= {"file": file, "file_name": "" if find_problem("name", file.stem) else file.stem}
    elif given["name"]:
        refuse_existing(file_of(given["name"]), force=force)
    terminal = sys.stdin.isatty()
    day = today()
    answers = answers_to(given, terminal=terminal, today=day)
    file = file or file_of(answers.name)
    written = write_starter(answers, file, force=force, with_schema=not no_schema, terminal=terminal, today=day)
    for problem in written.warnings:
        voice().tell(problem_text(problem))
    lines = [f"wrote {file}, which validates"]
    if written.schema:
        lines.append(f"wrote {written.schema}, by which editors complete and check it")
    click.echo(joined([*lines, f"next: imagegen lock {shlex.quote(str(file))}"]))
