"""What `imagegen init` was told, and what it asks for on a terminal, in; a config that validates out."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from imagegen.errors import ConfigError

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from imagegen.config.starter import Answers
    from imagegen.errors import Problem

_RELEASE = "2022"
_FOR = {
    "aws": ("region",),
    "azure": ("location", "gallery_resource_group", "gallery", "definition"),
}
_TEXTS = {
    "release": "Windows release",
    "kubernetes": "Kubernetes version",
    "containerd": "containerd version",
    "name": "Name of the image",
    "targets": "Clouds (aws, azure)",
    "allow_cidr": "Networks that Packer reaches the builder from, as 198.51.100.7/32",
    "region": "AWS region to build in",
    "location": "Azure region to build in",
    "gallery_resource_group": "Resource group of the Azure Compute Gallery",
    "gallery": "Name of the gallery",
    "definition": "Image definition in the gallery",
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
        return check(default)


def answers_to(given: Mapping[str, Any], *, terminal: bool, today: datetime.date) -> Answers:
    """Everything that a first config needs, or one error that names every flag that is missing."""
    from imagegen.catalog.facts import table
    from imagegen.config.starter import Answers, OnAws, OnAzure

    interview = Interview(given, terminal)
    release = interview.answer("release", _RELEASE, _one_of(list(table("windows")["releases"])))
    newest_kubernetes, newest_containerd = _newest(release, today)
    kubernetes = interview.answer("kubernetes", newest_kubernetes, _plain("kubernetes"))
    containerd = interview.answer("containerd", newest_containerd, _plain("containerd"))
    name = interview.answer("name", given.get("file_name") or f"windows-{release}-containerd", _plain("name"))
    clouds = interview.answer("targets", "aws, azure" if terminal else None, _clouds)
    _refuse_idle(given, clouds)
    cidrs = interview.answer("allow_cidr", None, _networks)
    defaults = {"definition": f"capi-win-{release}-containerd"}
    of_clouds = {
        cloud: {
            question: interview.answer(question, defaults.get(question), _plain(question)) for question in questions
        }
        for cloud, questions in _FOR.items()
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
        OnAws(**of_clouds["aws"]) if "aws" in of_clouds else None,
        OnAzure(**of_clouds["azure"]) if "azure" in of_clouds else None,
    )


def _plain(question: str) -> Callable[[str], str]:
    from imagegen.config.starter import complaint

    def check(answer: str) -> str:
        if wrong := complaint(question, answer):
            raise click.UsageError(wrong)
        return answer

    return check


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    from imagegen.documents.problems import nearest

    def check(answer: str) -> str:
        if answer not in known:
            raise click.UsageError(f"{answer!r} is not known here; {nearest(answer, known)}")
        return answer

    return check


def _clouds(answer: str | Sequence[str]) -> list[str]:
    words = answer.replace(",", " ").split() if isinstance(answer, str) else answer
    if not words:
        raise click.UsageError("name at least one of aws and azure")
    return [_one_of(list(_FOR))(word) for word in dict.fromkeys(words)]


def _networks(answer: str | Sequence[str]) -> list[str]:
    import ipaddress

    from imagegen.config.starter import complaint

    words = answer.replace(",", " ").split() if isinstance(answer, str) else list(answer)
    if wrong := complaint("allow_cidr", words) or ("" if words else "name at least one network"):
        raise click.UsageError(wrong)
    for word in words:
        try:
            ipaddress.ip_network(word)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    return words


def _refuse_idle(given: Mapping[str, Any], clouds: Sequence[str]) -> None:
    """Nothing is accepted and then ignored: a cloud's flag without the cloud is an error."""
    for cloud, questions in _FOR.items():
        for question in questions:
            if clouds and cloud not in clouds and given.get(question):
                flag = f"--{question.replace('_', '-')}"
                raise ConfigError(f"{flag} is for {cloud}, which is no target", hint=f"add --target {cloud}")


def _newest(release: str, today: datetime.date) -> tuple[str, str]:
    """The newest Kubernetes that is tested on the release and still supported, and the newest containerd for it."""
    from imagegen.catalog.facts import goes_with, numbers, table

    minors = table("kubernetes")["minors"]
    good = [
        minor
        for minor, row in minors.items()
        if row["windows"].get(release, {}).get("verdict") == "tested" and row["end_of_life"] >= today.isoformat()
    ]
    minor = max(good or minors, key=numbers)
    lines = table("containerd")["lines"]
    fitting = [line for line, row in lines.items() if goes_with(row, minor)]
    return minors[minor]["latest_patch"], lines[max(fitting or lines, key=numbers)]["newest_patch"]


def write_starter(answers: Answers, file: Path, *, force: bool, today: datetime.date) -> tuple[Problem, ...]:
    """The config, whole or not at all, and only where every rule takes it; what should be known of it is returned."""
    from imagegen.build.workspace import write_file
    from imagegen.config.schema import FILE_NAME
    from imagegen.config.starter import starter_text

    refuse_existing(file, force=force)
    text = starter_text(answers, modeline=file.with_name(FILE_NAME).is_file())
    warnings = _judged(text, file, today)
    try:
        write_file(file, text.encode())
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from None
    return warnings


def refuse_existing(file: Path, *, force: bool) -> None:
    """Somebody's config is not replaced by accident."""
    if file.exists() and not file.is_file():
        raise ConfigError(f"{file} is no ordinary file", hint="choose another")
    if file.exists() and not force:
        raise ConfigError(f"{file} is there already", hint="choose another file, or --force to replace it")


def _judged(text: str, file: Path, today: datetime.date) -> tuple[Problem, ...]:
    import tempfile
    from pathlib import Path

    from imagegen import pipeline

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder, "config.yaml")
        draft.write_text(text, encoding="utf-8")
        try:
            loaded = pipeline.load(pipeline.Asked(draft, today))
        except ConfigError as error:
            problems = [problem._replace(file=str(file)) for problem in error.problems]
            message = f"{file} is not written: these answers do not go together"
            raise ConfigError(message, problems=problems) from None
    return tuple(problem._replace(file=str(file)) for problem in loaded.warnings)
