"""Answers to a few questions in, a commented config out. Pure.

Each answer is judged by the model alone; whether they go together is for the rules, on the whole config.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pydantic

from imagegen.config.model import ImageConfig
from imagegen.config.reference import flow
from imagegen.config.schema import MODELINE
from imagegen.documents.problems import model_problems
from imagegen.documents.yaml import Document, dotted
from imagegen.providers.questions import all_questions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.documents.yaml import YamlPath

_PATHS: Mapping[str, YamlPath] = {
    "name": ("name",),
    "release": ("windows", "release"),
    "kubernetes": ("kubernetes", "version"),
    "containerd": ("runtime", "containerd", "version"),
}


def answer_paths() -> dict[str, YamlPath]:
    """Where each answer stands in the config; that of the networks stands in every target."""
    clouds = all_questions()
    of_clouds = {
        question.name: ("targets", cloud, *question.path)
        for cloud, asked in clouds.items()
        for question in asked.questions
    }
    return {**_PATHS, **of_clouds, "allow_cidr": ("targets", next(iter(clouds)), "network", "allowed_cidrs")}


@dataclasses.dataclass(frozen=True)
class Answers:
    """What a first config cannot do without."""

    name: str
    release: str
    kubernetes: str
    containerd: str
    allowed_cidrs: tuple[str, ...]
    clouds: Mapping[str, Mapping[str, str]]
    """By the cloud: the answers to its own questions."""
    allow_eol: bool = False


def complaint(question: str, answer: str | list[str]) -> str:
    """What the model has to say against an answer; empty where it takes it."""
    path = answer_paths()[question]
    data: Any = answer
    for part in reversed(path):
        data = {part: data}
    try:
        ImageConfig.model_validate(data)
    except pydantic.ValidationError as error:
        lines = {path[:length]: 1 for length in range(len(path) + 1)}
        problems = model_problems(error, Document("", data, lines), ImageConfig)
        # Everything else that a config needs is missing here, and is no fault of this answer.
        about = [problem for problem in problems if problem.path.startswith(dotted(path))]
        return f"{about[0].message}. {about[0].hint}".strip() if about else ""
    return ""


def starter_text(answers: Answers, *, modeline: bool) -> str:
    """The config; with the editor's modeline only where a schema lies beside it."""
    clouds = {cloud: questions for cloud, questions in all_questions().items() if cloud in answers.clouds}
    parts = [
        *([MODELINE] if modeline else []),
        f"# Windows {answers.release} with containerd {answers.containerd} and Kubernetes {answers.kubernetes},"
        f" for {' and '.join(cloud.title for cloud in clouds.values())}.",
        "# `imagegen schema --format yaml` shows every key that a config may have; `imagegen explain` says where each",
        "# value of this one comes from.",
        *([_ENDED] if answers.allow_eol else []),
        _NODE.format(**{key: flow(getattr(answers, key)) for key in ("name", "release", "kubernetes", "containerd")}),
    ]
    cidrs = flow(list(answers.allowed_cidrs))
    for cloud, questions in clouds.items():
        words = {name: flow(answer) for name, answer in answers.clouds[cloud].items()}
        parts.append(questions.text.format(cidrs=cidrs, **words))
    return "\n".join(parts)


_ENDED = """\

# Something here no longer receives security fixes. Without this line imagegen refuses it; the manifest records it.
allow_eol: true"""

_NODE = """\

name: {name}

# The release decides the base image, registry fixes and which container images run.
windows:
  release: {release}

# The node components. Versions are texts: keep the quotes.
kubernetes:
  version: {kubernetes}

runtime:
  containerd:
    version: {containerd}

# Your own signed or mirrored artifacts, by the names of `imagegen catalog overrides`:
# overrides:
#   containerd_url: https://artifacts.example.com/containerd.tar.gz

# Where the image is built and published. Credentials come from the environment, never from here.
targets:"""
