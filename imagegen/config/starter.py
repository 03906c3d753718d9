"""Makes a first config with comments from the answers to a few questions. Pure.

The model checks each answer by itself. The rules check the whole config.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import pydantic

from imagegen.catalog.facts import minor
from imagegen.config.model import ImageConfig
from imagegen.config.problems import model_problems
from imagegen.config.reference import flow
from imagegen.config.schema import MODELINE
from imagegen.config.yaml import Document, YamlPath, dotted
from imagegen.providers.questions import all_questions, find_additions

_PATHS: Mapping[str, YamlPath] = {
    "name": ("name",),
    "release": ("windows", "release"),
    "kubernetes": ("kubernetes", "version"),
    "containerd": ("runtime", "containerd", "version"),
}


def answer_paths() -> dict[str, YamlPath]:
    """The path of each answer in the config. The networks are in every target: their path is that of the first."""
    clouds = all_questions()
    return {
        **_PATHS,
        **{one.name: ("targets", cloud, *one.path) for cloud, about in clouds.items() for one in about.questions},
        "allow_cidr": ("targets", next(iter(clouds)), "network", "allowed_cidrs"),
    }


@dataclasses.dataclass(frozen=True)
class Answers:
    """The values that a first config needs."""

    name: str
    release: str
    kubernetes: str
    containerd: str
    allowed_cidrs: tuple[str, ...]
    clouds: Mapping[str, Mapping[str, str]]
    """The answers to the questions of each cloud."""
    additions: tuple[str, ...] = ()
    """The names of what else the image has."""
    allow_eol: bool = False


def find_problem(question: str, answer: str | list[str]) -> tuple[str, str] | None:
    """Why an answer is invalid, and a hint; None if it is valid."""
    path = answer_paths()[question]
    data: Any = answer
    for part in reversed(path):
        data = {part: data}
    try:
        ImageConfig.model_validate(data)
    except pydantic.ValidationError as error:
        document = Document("", data, {path[:length]: 1 for length in range(len(path) + 1)})
        # All other required keys are missing here: that is no problem of this answer.
        about = [one for one in model_problems(error, document, ImageConfig) if one.path.startswith(dotted(path))]
        return (about[0].message, about[0].hint) if about else None
    return None


def starter_text(answers: Answers, *, modeline: bool) -> str:
    """The config. `modeline` adds the line by which editors find a schema in the same folder."""
    clouds = {cloud: questions for cloud, questions in all_questions().items() if cloud in answers.clouds}
    parts = [
        *([MODELINE] if modeline else []),
        f"# Windows {answers.release} with containerd {answers.containerd} and Kubernetes {answers.kubernetes},"
        f" for {' and '.join(cloud.title for cloud in clouds.values())}.",
        "# `imagegen schema --format yaml` prints every key of a config. `imagegen explain` shows where each value of",
        "# this config comes from.",
        *([_ENDED] if answers.allow_eol else []),
        _NODE.format(
            **{key: flow(getattr(answers, key)) for key in ("name", "release", "kubernetes", "containerd")},
            additions=_additions_text(answers),
        ),
    ]
    for cloud, questions in clouds.items():
        values = {name: flow(answer) for name, answer in answers.clouds[cloud].items()}
        parts.append(questions.text.format(cidrs=flow(list(answers.allowed_cidrs)), **values))
    return "\n".join(parts)


def _additions_text(answers: Answers) -> str:
    offered = find_additions(answers.clouds)
    chosen = [one for name, one in offered.items() if name in answers.additions]
    text = ""
    for section, additions in itertools.groupby(chosen, key=lambda one: one.section):
        lines = "".join(one.text.format(minor=minor(answers.kubernetes)) for one in additions)
        text += f"{section}\n{lines}\n"
    return text


_ENDED = """\

# A release in this config no longer receives security fixes. Without this line imagegen refuses it. The manifest
# records it.
allow_eol: true"""

_NODE = """\

name: {name}

# The release decides the base image, the registry fixes and which container images can run.
windows:
  release: {release}

# The node components. Versions are strings: keep the quotes.
kubernetes:
  version: {kubernetes}

runtime:
  containerd:
    version: {containerd}

{additions}# Your own signed or mirrored artifacts. `imagegen catalog overrides` lists the names:
# overrides:
#   containerd_url: https://artifacts.example.com/containerd.tar.gz

# Where the image is built and published. Credentials come from the environment, never from a config.
targets:"""
