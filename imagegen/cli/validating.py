"""Configs in; every problem of each out, for people, machines or the annotations of a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from imagegen.cli.telling import voice
from imagegen.console import counted
from imagegen.errors import ERROR, ConfigError, ExitCode
from imagegen.lines import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.errors import Problem


class Verdict(NamedTuple):
    """What is to be said of one config; `awaited` is what it asks for that is not built yet."""

    file: Path
    name: str
    targets: list[str]
    problems: list[Problem]
    awaited: list[Problem]
    failure: ConfigError | None

    def as_json(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "ok": self.failure is None,
            "buildable": self.failure is None and not self.awaited,
            "name": self.name,
            "targets": self.targets,
            "problems": [problem._asdict() for problem in [*self.problems, *self.awaited]],
            "message": self.failure.message if self.failure else "",
            "hint": self.failure.hint if self.failure else "",
        }


def validate_configs(configs: tuple[Path, ...], target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Says of each config what is to be said, and ends with a usage error where one is wrong."""
    verdicts = [_judged(config, target, sets) for config in configs]
    if form == "json":
        from imagegen.cli.show import print_json

        told = [verdict.as_json() for verdict in verdicts]
        print_json({"ok": all(one["ok"] for one in told), "configs": told})
    else:
        told_before: set[Problem] = set()
        for verdict in verdicts:
            (_annotate if form == "github" else _tell)(verdict, told_before)
            told_before |= {*verdict.problems, *verdict.awaited}
        if form == "text" and len(verdicts) > 1:
            click.echo(one_line(_summary(verdicts)))
    if any(verdict.failure for verdict in verdicts):
        raise click.exceptions.Exit(int(ExitCode.USAGE))


def _judged(config: Path, target: str | None, sets: tuple[str, ...]) -> Verdict:
    from imagegen import pipeline
    from imagegen.cli.asking import asked

    try:
        loaded = pipeline.load(asked(config, sets))
        if target is not None:
            pipeline.check_target(loaded, target)
    except ConfigError as error:
        return Verdict(config, "", [], list(error.problems), [], error)
    targets = [target] if target else list(loaded.config.targets.named())
    awaited = list(loaded.awaited) if target is None else pipeline.awaited_for(loaded, target)
    return Verdict(config, loaded.config.name, targets, list(loaded.warnings), awaited, None)


def _tell(verdict: Verdict, told_before: set[Problem]) -> None:
    """A warning of a config that several extend is told once; what refuses a config is told of each."""
    from imagegen.cli.show import error_text, problem_text

    if verdict.failure is not None:
        voice().tell(error_text(verdict.failure))
        return
    for problem in _new([*verdict.problems, *verdict.awaited], told_before):
        voice().tell(problem_text(problem))
    ok = "ok, and cannot be built yet" if verdict.awaited else "ok"
    click.echo(one_line(f"{verdict.file}: {ok} ({verdict.name} for {', '.join(verdict.targets)})"))


def _new(problems: list[Problem], told_before: set[Problem]) -> list[Problem]:
    return [problem for problem in problems if problem not in told_before]


def _summary(verdicts: list[Verdict]) -> str:
    wrong = sum(verdict.failure is not None for verdict in verdicts)
    later = sum(verdict.failure is None and bool(verdict.awaited) for verdict in verdicts)
    told = {problem for verdict in verdicts for problem in (*verdict.problems, *verdict.awaited)}
    warnings = sum(problem.severity != ERROR for problem in told)
    parts = [f"{len(verdicts) - wrong - later} ok", f"{later} cannot be built yet", f"{wrong} wrong"]
    return f"{len(verdicts)} configs: {', '.join(parts)}; {counted(warnings, 'warning')}"


def _annotate(verdict: Verdict, told_before: set[Problem]) -> None:
    for problem in _new([*verdict.problems, *verdict.awaited], told_before):
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
