"""What `imagegen init` was told, and what it asks for on a terminal, in; a config that validates out."""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imagegen import loading
from imagegen.catalog.facts import is_compatible, is_listed, numbers, table
from imagegen.cli.overrides import known_words
from imagegen.cli.telling import voice
from imagegen.config.schema import FILE_NAME, config_schema, schema_text
from imagegen.config.starter import Answers, find_problem, starter_text
from imagegen.documents.problems import nearest, quoted
from imagegen.errors import ERROR, ConfigError
from imagegen.files import check_name, write_file
from imagegen.lines import one_line
from imagegen.providers.questions import all_questions

if TYPE_CHECKING:
    from imagegen.errors import Problem

_RELEASE = "2022"
_TEXTS = {
    "release": "Windows release",
    "kubernetes": "Kubernetes version",
    "containerd": "containerd version",
    "name": "Name of the image",
    "targets": f"Clouds ({', '.join(all_questions())})",
    "allow_cidr": "Networks that Packer connects from, for example 198.51.100.7/32",
    **{question.name: question.prompt for cloud in all_questions().values() for question in cloud.questions},
}


@dataclasses.dataclass
class Interview:
    """Takes what was given, asks for the rest where there is somebody to ask, and collects what nobody said."""

    given: Mapping[str, Any]
    terminal: bool
    missing: list[str] = dataclasses.field(default_factory=list)

    def answer(self, question: str, default: str | None, check: Callable[[str], Any]) -> Any:  # noqa: ANN401 - what the check makes of it
        """An answer that the check takes; on a terminal a bad one is asked for again."""
        flag = f"--{'target' if question == 'targets' else question.replace('_', '-')}"
        if said := self.given.get(question):
            try:
                return check(said)
            except click.UsageError as error:
                raise ConfigError(f"{flag}: {error.message}") from None
        if self.terminal:
            return click.prompt(_TEXTS[question], default=default, value_proc=check, err=True)
        if default is None:
            self.missing.append(flag)
            return ""
        try:
            return check(default)
        except click.UsageError as error:
            raise ConfigError(error.message) from None


def answers_to(given: Mapping[str, Any], *, terminal: bool, today: datetime.date) -> Answers:
    """Everything that a first config needs, or one error that names every flag that is missing."""
    interview = Interview(given, terminal)
    release = interview.answer("release", _RELEASE, _release)
    name = interview.answer("name", given.get("file_name") or f"windows-{release}-containerd", _free_name(given))
    newest_kubernetes, newest_containerd = _newest(release, today)
    kubernetes = interview.answer("kubernetes", newest_kubernetes, _plain("kubernetes"))
    containerd = interview.answer("containerd", newest_containerd, _plain("containerd"))
    clouds = interview.answer("targets", ", ".join(all_questions()) if terminal else None, _clouds)
    _refuse_idle(given, clouds)
    cidrs = interview.answer("allow_cidr", None, _networks)
    of_clouds = {
        cloud: {
            question.name: interview.answer(
                question.name, question.default and question.default.format(release=release), _plain(question.name)
            )
            for question in asked.questions
        }
        for cloud, asked in all_questions().items()
        if cloud in clouds
    }
    if interview.missing:
        hint = "give them, or run it on a terminal to be asked"
        raise ConfigError(f"missing: {', '.join(interview.missing)}", hint=hint)
    return Answers(
        name,
        release,
        kubernetes,
        containerd,
        tuple(cidrs),
        of_clouds,
        allow_eol=bool(given.get("allow_eol")),
    )


def _release(answer: str) -> str:
    if refused := table("windows")["refused"].get(answer):
        raise click.UsageError(f"{answer} cannot be built: {refused['reason']}")
    return _one_of(list(table("windows")["releases"]))(answer)


def _free_name(given: Mapping[str, Any]) -> Callable[[str], str]:
    """A name that is a file's too must not be taken; it is asked for early, so that no other answer is lost."""

    def check(answer: str) -> str:
        name = _plain("name")(answer)
        if "file" not in given:
            try:
                refuse_existing(file_of(name), force=bool(given.get("force")))
            except ConfigError as error:
                raise click.UsageError(f"{error.message}; choose another name, or give --force to replace it") from None
        return name

    return check


def file_of(name: str) -> Path:
    """The file of a config for which no other is named."""
    return Path(f"{name}.yaml")


def _plain(question: str) -> Callable[[str], str]:
    def check(answer: str) -> str:
        if wrong := find_problem(question, answer):
            raise click.UsageError(wrong)
        return answer

    return check


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def check(answer: str) -> str:
        if answer not in known:
            raise click.UsageError(f"unknown value {quoted(answer)}; {nearest(answer, known)}")
        return answer

    return check


def _clouds(answer: str | Sequence[str]) -> list[str]:
    words = answer.replace(",", " ").split() if isinstance(answer, str) else answer
    if not words:
        raise click.UsageError(f"name at least one of {' and '.join(all_questions())}")
    return [_one_of(list(all_questions()))(word) for word in dict.fromkeys(words)]


def _networks(answer: str | Sequence[str]) -> list[str]:
    words = answer.replace(",", " ").split() if isinstance(answer, str) else list(answer)
    if wrong := find_problem("allow_cidr", words) or ("" if words else "name at least one network"):
        raise click.UsageError(wrong)
    for word in words:
        try:
            ipaddress.ip_network(word)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    return words


def _refuse_idle(given: Mapping[str, Any], clouds: Sequence[str]) -> None:
    """Nothing is accepted and then ignored: a cloud's flag without the cloud is an error."""
    for cloud, asked in all_questions().items():
        for question in asked.questions:
            if clouds and cloud not in clouds and given.get(question.name):
                raise ConfigError(f"{question.option} is for {cloud}, which is no target", hint=f"add --target {cloud}")


def _newest(release: str, today: datetime.date) -> tuple[str, str]:
    """The newest Kubernetes tested on the release, supported where any is, and the containerd supported longest."""
    minors = table("kubernetes")["minors"]
    tested = [minor for minor, row in minors.items() if row["windows"].get(release, {}).get("verdict") == "tested"]
    good = [minor for minor in tested if minors[minor]["end_of_life"] >= today.isoformat()]
    minor = max(good or tested or minors, key=numbers)
    lines = table("containerd")["lines"]
    fitting = [
        line for line, row in lines.items() if is_compatible(row, minor) and is_listed(row["newest_patch"], minor)
    ]
    line = max(fitting or lines, key=lambda name: str(lines[name]["end_of_life"]))
    return minors[minor]["latest_patch"], lines[line]["newest_patch"]


@dataclasses.dataclass(frozen=True)
class Written:
    """What was written."""

    schema: Path | None
    """The schema, where none lay beside the config."""
    warnings: tuple[Problem, ...]


def write_starter(
    answers: Answers, file: Path, *, force: bool, with_schema: bool, terminal: bool, today: datetime.date
) -> Written:
    """The config, whole or not at all, and only where every rule takes it; and the schema by which editors check it."""
    refuse_existing(file, force=force)
    schema = file.with_name(FILE_NAME)
    missing = with_schema and not schema.is_file()
    text = starter_text(answers, modeline=missing or schema.is_file())
    problems = _judged(text, file, today)
    wrong = [problem for problem in problems if problem.severity == ERROR]
    if wrong:
        answers = _with_ended_support(answers, file, problems, terminal=terminal)
        return write_starter(answers, file, force=force, with_schema=with_schema, terminal=terminal, today=today)
    try:
        if missing:
            write_file(schema, _schema())
        write_file(file, text.encode())
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    return Written(schema if missing else None, problems)


def _with_ended_support(answers: Answers, file: Path, problems: Sequence[Problem], *, terminal: bool) -> Answers:
    """The same answers with leave to build what is no longer supported, if that is all that is wrong and wanted."""
    ended = [problem for problem in problems if problem.rule == "support-ended"]
    if terminal and ended == [problem for problem in problems if problem.severity == ERROR]:
        for problem in ended:
            voice().tell(one_line(f"{problem.path}: {problem.message}"))
        if click.confirm("Build it all the same (allow_eol: true)?", err=True):
            return dataclasses.replace(answers, allow_eol=True)
    message = f"{file} is not written: these answers do not go together"
    hint = "give --allow-eol to build what is no longer supported; the manifest records it" if ended else ""
    raise ConfigError(message, problems=problems, hint=hint)


def _schema() -> bytes:
    return schema_text(config_schema(known_words())).encode()


def refuse_existing(file: Path, *, force: bool) -> None:
    """Somebody's config is not replaced by accident, and none gets a name by which it is refused afterwards."""
    check_name(file)
    if file.is_symlink() or (file.exists() and not file.is_file()):
        # What takes its place would replace a link, not what it leads to.
        raise ConfigError(f"{file} is not an ordinary file", hint="choose another file")
    if file.exists() and not force:
        raise ConfigError(f"{file} exists already", hint="choose another file, or give --force to replace it")


def _judged(text: str, file: Path, today: datetime.date) -> tuple[Problem, ...]:
    """What the rules say of the config."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "config.yaml")
        draft.write_text(text, encoding="utf-8")
        try:
            problems = loading.load(loading.ConfigRequest(draft, today)).warnings
        except ConfigError as error:
            problems = error.problems
    return tuple(dataclasses.replace(problem, file=str(file)) for problem in problems)
