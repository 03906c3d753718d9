"""`imagegen validate`: every problem of each config, for people, machines or the annotations of a pull request."""

import dataclasses
from pathlib import Path

import click

from imagegen import loading
from imagegen.cli import options
from imagegen.cli.configs import config_request
from imagegen.cli.show import error_text, print_json, problem_text
from imagegen.cli.telling import voice
from imagegen.errors import ERROR, ConfigError, ExitCode, Problem
from imagegen.lines import counted, one_line


@click.command()
@options.CONFIGS
@click.option("--target", metavar="NAME", help="Also check that the config has this target.")
@options.SET
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="text for people, json for machines, github for annotations of a pull request.",
)
def validate(configs: tuple[Path, ...], target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Check configs: their form and every rule. Looks nothing up.

    All problems are told at once, each with file, line, path, the rule's id and a hint.

    \b
      imagegen validate configs/*.yaml
      imagegen validate image.yaml --set kubernetes.version=1.37.0 --format json

    What works and should be known is a warning; so is what this version of imagegen cannot make yet, which
    `imagegen plan` refuses. Exit code 2 where a config is wrong.
    """
    verdicts = [_judged(config, target, sets) for config in configs]
    if form == "json":
        told = [verdict.as_json() for verdict in verdicts]
        print_json({"ok": all(one["ok"] for one in told), "configs": told})
    else:
        told_before: set[Problem] = set()
        for verdict in verdicts:
            (_annotate if form == "github" else _tell)(verdict, told_before)
            told_before |= {*verdict.problems, *verdict.unimplemented}
        if form == "text" and len(verdicts) > 1:
            click.echo(one_line(_summary(verdicts)))
    if any(verdict.failure for verdict in verdicts):
        raise click.exceptions.Exit(int(ExitCode.USAGE))


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What is to be said of one config; `unimplemented` is what it asks for that is not built yet."""

    file: Path
    name: str
    targets: list[str]
    problems: list[Problem]
    unimplemented: list[Problem]
    failure: ConfigError | None

    def as_json(self) -> dict[str, object]:
        return {
            "file": str(self.file),
            "ok": self.failure is None,
            "buildable": self.failure is None and not self.unimplemented,
            "name": self.name,
            "targets": self.targets,
            "problems": [dataclasses.asdict(problem) for problem in [*self.problems, *self.unimplemented]],
            "message": self.failure.message if self.failure else "",
            "hint": self.failure.hint if self.failure else "",
        }


def _judged(config: Path, target: str | None, sets: tuple[str, ...]) -> Verdict:
    try:
        loaded = loading.load(config_request(config, sets))
        targets = loading.find_targets(loaded, target)
    except ConfigError as error:
        return Verdict(config, "", [], list(error.problems), [], error)
    unimplemented = loading.unimplemented_for(loaded, targets)
    return Verdict(config, loaded.config.name, targets, list(loaded.warnings), unimplemented, None)


def _tell(verdict: Verdict, told_before: set[Problem]) -> None:
    """A warning of a config that several extend is told once; what refuses a config is told of each."""
    if verdict.failure is not None:
        voice().tell(error_text(verdict.failure))
        return
    for problem in _new([*verdict.problems, *verdict.unimplemented], told_before):
        voice().tell(problem_text(problem))
    ok = "ok, and cannot be built yet" if verdict.unimplemented else "ok"
    click.echo(one_line(f"{verdict.file}: {ok} ({verdict.name} for {', '.join(verdict.targets)})"))


def _new(problems: list[Problem], told_before: set[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem not in told_before]


def _summary(verdicts: list[Verdict]) -> str:
    wrong = sum(verdict.failure is not None for verdict in verdicts)
    later = sum(verdict.failure is None and bool(verdict.unimplemented) for verdict in verdicts)
    told = {problem for verdict in verdicts for problem in (*verdict.problems, *verdict.unimplemented)}
    warnings = sum(problem.severity != ERROR for problem in told)
    parts = [f"{len(verdicts) - wrong - later} ok", f"{later} cannot be built yet", f"{wrong} wrong"]
    return f"{len(verdicts)} configs: {', '.join(parts)}; {counted(warnings, 'warning')}"


def _annotate(verdict: Verdict, told_before: set[Problem]) -> None:
    for problem in _new([*verdict.problems, *verdict.unimplemented], told_before):
        kind = "error" if problem.severity == ERROR else "warning"
        words = [f"{problem.path}: {problem.message}" if problem.path else problem.message]
        words += [f"hint: {problem.hint}"] if problem.hint else []
        # What --set said stands in no file: the config is what the annotation can be shown at.
        file = problem.file if problem.line else str(verdict.file)
        words += [] if problem.line or problem.file == file else [f"said by {problem.file}"]
        place = [f"file={_property(file)}", *([f"line={problem.line}"] if problem.line else [])]
        title = [f"title={_property(problem.rule)}"] if problem.rule else []
        click.echo(_annotation(kind, [*place, *title], words))
    if verdict.failure is not None and not verdict.problems:
        click.echo(_annotation("error", [f"file={_property(str(verdict.file))}"], [verdict.failure.message]))


def _annotation(kind: str, properties: list[str], words: list[str]) -> str:
    """The command itself, in which every value is harmless."""
    return f"::{kind} {','.join(properties)}::{_escaped(words)}"


def _escaped(lines: list[str]) -> str:
    # https://docs.github.com/actions/reference/workflow-commands: what would end the command is written as %XX.
    return "%0A".join(one_line(line).replace("%", "%25") for line in lines)


def _property(text: str) -> str:
    return _escaped([text]).replace(":", "%3A").replace(",", "%2C")
