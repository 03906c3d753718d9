"""`imagegen init`: asks a few questions, and writes a first config that validates."""

import dataclasses
import datetime
import functools
import ipaddress
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from imagegen.base.errors import ERROR, ConfigError, Problem
from imagegen.base.files import check_name, write_file
from imagegen.base.lines import joined, one_line
from imagegen.catalog.facts import is_compatible, is_listed, numbers, table
from imagegen.cli.inspection import known_facts
from imagegen.cli.messages import messages
from imagegen.cli.options import today
from imagegen.cli.output import problem_text
from imagegen.config.problems import nearest, quoted
from imagegen.config.schema import FILE_NAME, config_schema, schema_text
from imagegen.config.starter import Answers, find_problem, starter_text
from imagegen.plan import loading
from imagegen.providers.questions import all_questions, find_additions

_PROMPTS: Final = {
    "release": "Windows release",
    "kubernetes": "Kubernetes version",
    "containerd": "containerd version",
    "name": "Name of the image",
    "targets": f"Clouds ({', '.join(all_questions())})",
    "allow_cidr": "Networks that Packer connects from, for example 198.51.100.7/32",
    "with": f"Also on the image ({', '.join(find_additions(all_questions()))}), or nothing",
    **{question.name: question.prompt for cloud in all_questions().values() for question in cloud.questions},
}


def _cloud_options(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each question of a cloud."""
    questions = [question for cloud in all_questions().values() for question in cloud.questions]
    for question in reversed(questions):
        command = click.option(question.option, metavar=question.metavar, help=question.help)(command)
    return command


def _example() -> str:
    cloud, about = next(iter(all_questions().items()))
    answers = [f"{question.option} {question.example}" for question in about.questions]
    return f"imagegen init --target {cloud} {' '.join(answers)} --allow-cidr 198.51.100.7/32"


_ADDITIONS: Final = "; ".join(f"{one.name}: {one.what}" for one in find_additions(all_questions()).values())
_HELP: Final = f"""Write a first config, with comments, to FILE (<name>.yaml by default).

Asks for each value that is not given as an option. Without a terminal it uses the defaults, and lists the options
that are required.

The JSON Schema is written beside the config, so that editors complete and check the config.

\b
For one cloud, without questions:
  {_example()}
"""


@click.command(help=_HELP)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--name", help="The name of the image, and of the config if FILE is left out.")
@click.option("--release", help="The Windows release: `imagegen catalog windows` lists them.")
@click.option("--kubernetes", metavar="VERSION", help="The Kubernetes version, for example 1.36.4.")
@click.option("--containerd", metavar="VERSION", help="The containerd version, for example 2.3.4.")
@click.option(
    "--target", "targets", multiple=True, type=click.Choice(list(all_questions())), help="A cloud; may be repeated."
)
@click.option(
    "--allow-cidr", multiple=True, metavar="CIDR", help="A network that Packer connects from; may be repeated."
)
@_cloud_options
@click.option(
    "--with",
    multiple=True,
    metavar="NAME",
    help=f"What else the image has; may be repeated. {_ADDITIONS}.",
)
@click.option("--allow-eol", is_flag=True, help="Accept versions that no longer receive security fixes.")
@click.option("--no-schema", is_flag=True, help="Do not write the JSON Schema for editors beside the config.")
@click.option("--force", is_flag=True, help="Replace an existing config.")
def init(file: Path | None, force: bool, no_schema: bool, **given: Any) -> None:  # noqa: ANN401 - answers, by the name of their question
    """Write a first config."""
    day, terminal = today(), sys.stdin.isatty()
    # Before the first question, so that no answer is lost.
    if file or given["name"]:
        _reject_existing(file or _file_for(given["name"]), force=force)
    answers = _collect_answers(given, file, force=force, terminal=terminal, today=day)
    file = file or _file_for(answers.name)
    _reject_existing(file, force=force)
    schema = file.with_name(FILE_NAME)
    has_schema = schema.is_file()
    text, warnings = _make_text(answers, file, modeline=has_schema or not no_schema, terminal=terminal, today=day)
    lines = [f"wrote {file}, which validates"]
    try:
        if not (has_schema or no_schema):
            write_file(schema, schema_text(config_schema(known_facts())).encode())
            lines.append(f"wrote {schema}, which editors use to complete and check it")
        write_file(file, text.encode())
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    for problem in warnings:
        messages().show(problem_text(problem))
    click.echo(joined([*lines, f"next: imagegen lock {shlex.quote(str(file))}"]))


class _InvalidAnswer(click.UsageError):
    """On a terminal the question is asked again after it. An invalid option ends the command."""

    def __init__(self, fault: str, hint: str = "") -> None:
        super().__init__(f"{fault}; {hint}" if hint else fault)
        self.fault = fault
        self.hint = hint


@dataclasses.dataclass
class Interview:
    """Takes each answer from the options or from the terminal. Without either it collects the missing options."""

    given: Mapping[str, Any]
    terminal: bool
    missing: list[str] = dataclasses.field(default_factory=list)

    def ask(self, question: str, default: str | None, check: Callable[[str], Any]) -> Any:  # noqa: ANN401 - the result of the check
        """The checked answer. On a terminal the question is repeated until the answer is valid."""
        option = f"--{'target' if question == 'targets' else question.replace('_', '-')}"
        given = self.given.get(question)
        if not given and self.terminal:
            return click.prompt(_PROMPTS[question], default=default, value_proc=check, err=True)
        if not given and default is None:
            self.missing.append(option)
            return ""
        try:
            return check(given or default or "")
        except _InvalidAnswer as error:
            raise ConfigError(f"{option}: {error.fault}" if given else error.fault, hint=error.hint) from None


def _collect_answers(
    given: Mapping[str, Any], file: Path | None, *, force: bool, terminal: bool, today: datetime.date
) -> Answers:
    """All answers, or one error that names every missing option."""
    interview = Interview(given, terminal)
    release = interview.ask("release", "2022", _check_release)
    name = file.stem if file and not find_problem("name", file.stem) else f"windows-{release}-containerd"
    name = interview.ask("name", name, functools.partial(_check_name, file, force))
    newest_kubernetes, newest_containerd = _newest(release, today)
    kubernetes = interview.ask("kubernetes", newest_kubernetes, functools.partial(_check_form, "kubernetes"))
    containerd = interview.ask("containerd", newest_containerd, functools.partial(_check_form, "containerd"))
    clouds = interview.ask("targets", ", ".join(all_questions()) if terminal else None, _check_clouds)
    _reject_useless(given, clouds)
    cidrs = interview.ask("allow_cidr", None, _check_networks)
    cloud_answers = {
        cloud: {
            question.name: interview.ask(
                question.name,
                question.default and question.default.format(release=release),
                functools.partial(_check_form, question.name),
            )
            for question in about.questions
        }
        for cloud, about in all_questions().items()
        if cloud in clouds
    }
    additions = interview.ask("with", "", functools.partial(_check_additions, clouds))
    if interview.missing:
        raise ConfigError(
            f"missing: {', '.join(interview.missing)}", hint="give them, or run it on a terminal to be asked"
        )
    return Answers(
        name, release, kubernetes, containerd, tuple(cidrs), cloud_answers, tuple(additions), given["allow_eol"]
    )


def _check_release(answer: str) -> str:
    if refused := table("windows")["refused"].get(answer):
        raise _InvalidAnswer(
            f"{answer} cannot be built: {refused['reason']}", "`imagegen catalog windows` lists others"
        )
    return _check_choice(table("windows")["releases"], answer)


def _check_choice(known: Iterable[str], answer: str) -> str:
    if answer not in known:
        raise _InvalidAnswer(f"unknown value {quoted(answer)}", nearest(answer, list(known)))
    return answer


def _check_form(question: str, answer: str) -> str:
    if wrong := find_problem(question, answer):
        raise _InvalidAnswer(*wrong)
    return answer


def _check_name(file: Path | None, force: bool, answer: str) -> str:
    """Check the name of the image. Without FILE it is also the name of the config, which must not exist yet."""
    name = _check_form("name", answer)
    if file is None:
        try:
            _reject_existing(_file_for(name), force=force)
        except ConfigError as error:
            raise _InvalidAnswer(error.message, "choose another name, or give --force to replace it") from None
    return name


def _check_clouds(answer: str | Sequence[str]) -> list[str]:
    clouds = _split(answer)
    if not clouds:
        raise _InvalidAnswer(f"name at least one of {' and '.join(all_questions())}")
    return [_check_choice(all_questions(), cloud) for cloud in dict.fromkeys(clouds)]


def _check_additions(clouds: Sequence[str], answer: str | Sequence[str]) -> list[str]:
    """Check the names of additions, of which some are for one cloud."""
    return [_check_choice(find_additions(clouds or all_questions()), name) for name in _split(answer)]


def _check_networks(answer: str | Sequence[str]) -> list[str]:
    networks = _split(answer)
    if not networks:
        raise _InvalidAnswer("name at least one network", "for example 198.51.100.7/32")
    if wrong := find_problem("allow_cidr", networks):
        raise _InvalidAnswer(*wrong)
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise _InvalidAnswer(str(error), f"write {_meant_network(network)}") from None
    return networks


def _meant_network(text: str) -> str:
    """The network of an address: 10.0.0.1/8 is in 10.0.0.0/8."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return "it as 198.51.100.7/32"


def _split(answer: str | Sequence[str]) -> list[str]:
    """The items of an answer: a line of the terminal, or the values of an option."""
    return answer.replace(",", " ").split() if isinstance(answer, str) else list(answer)


def _reject_useless(given: Mapping[str, Any], clouds: Sequence[str]) -> None:
    """Reject an option of a cloud that is not a target, because it would have no effect."""
    for cloud, about in all_questions().items():
        for question in about.questions:
            if clouds and cloud not in clouds and given[question.name]:
                raise ConfigError(f"{question.option} is for {cloud}, which is no target", hint=f"add --target {cloud}")


def _newest(release: str, today: datetime.date) -> tuple[str, str]:
    """The newest Kubernetes tested on the release, supported if possible, and the containerd supported longest."""
    minors = table("kubernetes")["minors"]
    tested = [minor for minor, row in minors.items() if row["windows"].get(release, {}).get("verdict") == "tested"]
    supported = [minor for minor in tested if minors[minor]["end_of_life"] >= today.isoformat()]
    minor = max(supported or tested or minors, key=numbers)
    lines = table("containerd")["lines"]
    fitting = [
        line for line, row in lines.items() if is_compatible(row, minor) and is_listed(row["newest_patch"], minor)
    ]
    line = max(fitting or lines, key=lambda name: str(lines[name]["end_of_life"]))
    return minors[minor]["latest_patch"], lines[line]["newest_patch"]


def _make_text(
    answers: Answers, file: Path, *, modeline: bool, terminal: bool, today: datetime.date
) -> tuple[str, Sequence[Problem]]:
    """The text of the config, and its warnings. An invalid config is an error."""
    text = starter_text(answers, modeline=modeline)
    problems = _find_problems(text, file, today)
    errors = [problem for problem in problems if problem.severity == ERROR]
    if not errors:
        return text, problems
    ended = [problem for problem in problems if problem.rule == "support-ended"]
    if terminal and ended == errors:
        for problem in ended:
            messages().show(one_line(f"{problem.path}: {problem.message}"))
        if click.confirm("Build it anyway (allow_eol: true)?", err=True):
            allowed = dataclasses.replace(answers, allow_eol=True)
            return _make_text(allowed, file, modeline=modeline, terminal=terminal, today=today)
    raise ConfigError(
        f"{file} is not written: these answers do not go together",
        problems=problems,
        hint="give --allow-eol to build what is no longer supported; the manifest records it" if ended else "",
    )


def _find_problems(text: str, file: Path, today: datetime.date) -> tuple[Problem, ...]:
    """The problems of a config that is not written yet."""
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "config.yaml")
        draft.write_text(text, encoding="utf-8")
        try:
            problems = loading.load(loading.ConfigRequest(draft, today)).warnings
        except ConfigError as error:
            problems = error.problems
    return tuple(dataclasses.replace(problem, file=str(file)) for problem in problems)


def _file_for(name: str) -> Path:
    return Path(f"{name}.yaml")


def _reject_existing(file: Path, *, force: bool) -> None:
    """Reject a config that exists, unless `force` replaces it, and a name that imagegen would not accept later."""
    check_name(file)
    if file.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{file} does not end with .yaml", hint=f"write {file.with_suffix('.yaml')}")
    if not file.parent.is_dir():
        raise ConfigError(
            f"the folder {file.parent} does not exist",
            hint=f"run `mkdir -p {shlex.quote(str(file.parent))}`, or correct the path",
        )
    if file.is_symlink() or (file.exists() and not file.is_file()):
        # Writing to a symlink would replace the link, not its target.
        raise ConfigError(f"{file} is not an ordinary file", hint="choose another file")
    if file.exists() and not force:
        raise ConfigError(f"{file} exists already", hint="choose another file, or give --force to replace it")
