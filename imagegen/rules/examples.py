"""Reads the example of a rule: a config that breaks the rule, its problems, and the nearest valid config.

`make golden` writes the files from the cases of the rule in tests/rules/<id>; a test compares them.
"""

import dataclasses
import json
import sys
from pathlib import Path

from imagegen.rules.rule import Rule


@dataclasses.dataclass(frozen=True)
class ExampleProblem:
    """A problem that the rule reports."""

    path: str
    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Example:
    """Parts of configs as YAML; the remaining parts break no rule."""

    broken: str
    says: tuple[ExampleProblem, ...]
    fine: str
    supposes: str = ""
    """The assumption of the example, where it would not break the rule today."""

    def as_json(self) -> dict[str, object]:
        """The example for machines."""
        return {**dataclasses.asdict(self), "says": [dataclasses.asdict(problem) for problem in self.says]}


def example_file(rule: Rule) -> Path:
    """The file with the example of a rule, beside the rule's module."""
    return Path(str(sys.modules[rule.module].__file__)).with_name("examples") / f"{rule.id}.json"


def example_of(rule: Rule) -> Example:
    """Read the example of a rule."""
    data = json.loads(example_file(rule).read_bytes())
    configs = {name: "".join(f"{line}\n" for line in data[name]) for name in ("broken", "fine")}
    return Example(**{**data, **configs, "says": tuple(ExampleProblem(**problem) for problem in data["says"])})
