"""The cases of a rule in, the example that `imagegen rules ID` shows out: the two cases that are most alike."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

from imagegen.config.reference import flow, scalar
from imagegen.config.yaml import read_yaml
from imagegen.rules.examples import Example, ExampleProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from imagegen.base.errors import Problem


@dataclasses.dataclass(frozen=True)
class Case:
    """One config of a rule's folder, and all that was said of it."""

    file: Path
    problems: Sequence[Problem]

    @property
    def is_broken(self) -> bool:
        return self.file.name.endswith(".broken.yaml")


def make_example(rule: str, cases: Sequence[Case], supposes: str) -> Example:
    """The nearest pair, by how few places differ; a broken case of no other rule comes first."""
    texts = {case.file: case_text(case.file) for case in cases}

    def distance(pair: tuple[Case, Case]) -> tuple[int, int, int, str]:
        broken, fine = pair
        others = {problem.rule for problem in broken.problems} - {rule}
        one, other = texts[broken.file], texts[fine.file]
        return len(others), len(set(one.splitlines()) ^ set(other.splitlines())), len(one + other), one

    pairs = [(broken, fine) for broken in cases for fine in cases if broken.is_broken and not fine.is_broken]
    broken, fine = min(pairs, key=distance)
    folder = f"{broken.file.parent}{os.sep}"
    says = [
        ExampleProblem(item.path, item.message.replace(folder, ""), item.hint)
        for item in broken.problems
        if item.rule == rule
    ]
    return Example(texts[broken.file], tuple(says), texts[fine.file], supposes)


def example_text(example: Example) -> str:
    """An example as its file: each line of a config on a line of its own, so that changes can be read."""
    data = dataclasses.asdict(example) | {"says": [dataclasses.asdict(said) for said in example.says]}
    data |= {name: data[name].splitlines() for name in ("broken", "fine")}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def case_text(file: Path) -> str:
    """A case without what every case extends; before it, a file of its own folder that it extends."""
    data = dict(read_yaml(file).data)
    extended = data.pop("extends")
    text = "".join(_block(data, 0)) or "# nothing more is said\n"
    if extended == "../base.yaml":
        return text
    return f"# {extended}\n{case_text(file.parent / extended)}\n# a config that extends it\nextends: {extended}\n{text}"


def _block(data: dict[str, Any], depth: int) -> Iterator[str]:
    """A map as people write it: one key a line."""
    indent = "  " * depth
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{scalar(key)}:\n"
            yield from _block(value, depth + 1)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{indent}{scalar(key)}:\n"
            for item in value:
                first, *rest = _block(item, depth + 2)
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        elif isinstance(value, str) and "\n" in value:
            yield f"{indent}{scalar(key)}: |\n"
            yield from (f"{indent}  {line}\n" for line in value.splitlines())
        else:
            yield f"{indent}{scalar(key)}: {flow(value)}\n"
