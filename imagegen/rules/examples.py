"""Reads the example of a rule: a config that breaks the rule, its problems, and the nearest valid config.

`make golden` writes the file from the cases in tests/rules, and a test compares both.
"""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("examples.json")


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


def example_of(rule: str) -> Example:
    """The example of a rule."""
    data = _read_examples()[rule]
    return Example(**{**data, "says": tuple(ExampleProblem(**problem) for problem in data["says"])})


@functools.cache
def _read_examples() -> dict[str, dict[str, Any]]:
    examples: dict[str, dict[str, Any]] = json.loads(FILE.read_bytes())
    return examples
