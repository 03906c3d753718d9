"""`imagegen validate`: every problem of each config, for people, programs or the annotations of a pull request."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from imagegen.base.errors import ERROR, ConfigError, ExitCode, Problem
from imagegen.base.lines import counted, one_line
from imagegen.cli import options
from imagegen.cli.messages import messages
from imagegen.cli.output import error_text, print_as, problem_text
from imagegen.plan import loading


@click.command()
@click.argument("configs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", metavar="NAME", help="Also check that the config has this target.")
@options.SET
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="text for people, json for programs, github for annotations of a pull request.",
)
def validate(configs: tuple[Path, ...], target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Check the form of configs, and every rule. Needs no network.

    All problems are reported at once, each with file, line, path, the rule's id and a hint.

    \b
      imagegen validate configs/*.yaml
      imagegen validate image.yaml --set kubernetes.version=1.37.0 --format json

    Warnings do not make a config invalid. Settings that are not implemented yet are warnings too, but `imagegen plan`
    refuses them. The exit code is 2 if a config is invalid.
    """
    results = [_check_config(config, target, sets) for config in configs]
    if form == "json":
        shown = [result.as_json() for result in results]
        print_as(form, {"ok": all(one["ok"] for one in shown), "configs": shown}, [])
    else:
        # A config that several others extend has the same warnings in each of them.
        known: set[Problem] = set()
        for result in results:
            new = [problem for problem in result.problems if problem not in known]
            (_annotate if form == "github" else _print_result)(result, new)
            known |= set(new)
        if form == "text" and len(results) > 1:
            click.echo(one_line(_summary(results, known)))
    if any(result.failure for result in results):
        raise click.exceptions.Exit(int(ExitCode.USAGE))


@dataclasses.dataclass(frozen=True)
class Result:
    """The result for one config. It can be built if it is valid and has no setting that is not implemented yet."""

    file: Path
    failure: ConfigError | None
    problems: Sequence[Problem]
    name: str = ""
    targets: Sequence[str] = ()
    can_be_built: bool = False

    def as_json(self) -> dict[str, object]:
        return {
            "file": str(self.file),
            "ok": self.failure is None,
            "buildable": self.can_be_built,
            "name": self.name,
            "targets": self.targets,
            "problems": [dataclasses.asdict(problem) for problem in self.problems],
            "message": self.failure.message if self.failure else "",
            "hint": self.failure.hint if self.failure else "",
        }


def _check_config(config: Path, target: str | None, sets: tuple[str, ...]) -> Result:
    try:
        loaded = loading.load(loading.ConfigRequest(config, options.today(), sets))
        targets = loading.find_targets(loaded, target)
    except ConfigError as error:
        return Result(config, error, error.problems)
    missing = loading.unimplemented_for(loaded, targets)
    return Result(config, None, [*loaded.warnings, *missing], loaded.config.name, targets, can_be_built=not missing)


def _print_result(result: Result, problems: list[Problem]) -> None:
    if result.failure is not None:
        messages().show(error_text(result.failure))
        return
    for problem in problems:
        messages().show(problem_text(problem))
    ok = "ok" if result.can_be_built else "ok, and cannot be built yet"
    click.echo(one_line(f"{result.file}: {ok} ({result.name} for {', '.join(result.targets)})"))


def _summary(results: list[Result], problems: set[Problem]) -> str:
    wrong = sum(result.failure is not None for result in results)
    ok = sum(result.can_be_built for result in results)
    warnings = sum(problem.severity != ERROR for problem in problems)
    counts = f"{ok} ok, {len(results) - ok - wrong} cannot be built yet, {wrong} wrong"
    return f"{len(results)} configs: {counts}; {counted(warnings, 'warning')}"


def _annotate(result: Result, problems: list[Problem]) -> None:
    """Print the problems as annotations of GitHub."""
    for problem in problems:
        message = [f"{problem.path}: {problem.message}" if problem.path else problem.message]
        message += [f"hint: {problem.hint}"] if problem.hint else []
        # A value of --set is in no file: its annotation is shown at the config.
        file = problem.file if problem.line else str(result.file)
        message += [] if problem.line or problem.file == file else [f"set by {problem.file}"]
        properties = {"file": file, "line": str(problem.line or ""), "title": problem.rule}
        click.echo(_annotation("error" if problem.severity == ERROR else "warning", properties, message))
    if result.failure is not None and not result.problems:
        click.echo(_annotation("error", {"file": str(result.file)}, [result.failure.message]))


def _annotation(kind: str, properties: dict[str, str], message: list[str]) -> str:
    """The command of a GitHub workflow. Every value is escaped."""
    pairs = [
        f"{key}={_escaped([text]).replace(':', '%3A').replace(',', '%2C')}" for key, text in properties.items() if text
    ]
    return f"::{kind} {','.join(pairs)}::{_escaped(message)}"


def _escaped(lines: list[str]) -> str:
    # https://docs.github.com/actions/reference/workflow-commands: characters that would end the command become %XX.
    return "%0A".join(one_line(line).replace("%", "%25") for line in lines)
