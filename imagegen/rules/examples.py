"""A rule's id in; a config that breaks the rule, what is said of it, and the nearest one that does not, out.

The files are made of the rule's cases in tests/rules/<id> by `make golden`; a test holds them against the cases.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imagegen.judging import Rule


@dataclasses.dataclass(frozen=True)
class Said:
    """What a rule says of a place of the config."""

    path: str
    message: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Example:
    """Parts of configs, as YAML; the rest of the config breaks no rule."""

    broken: str
    says: tuple[Said, ...]
    fine: str
    supposes: str = ""
    """What the example takes for granted, where it would break nothing today."""

    def as_json(self) -> dict[str, object]:
        """The example for machines."""
        return {**dataclasses.asdict(self), "says": [dataclasses.asdict(said) for said in self.says]}


def example_file(rule: Rule) -> Path:
    """Where the example of a rule lies: beside the rule's module."""
    return Path(str(sys.modules[rule.module].__file__)).with_name("examples") / f"{rule.id}.json"


def example_of(rule: Rule) -> Example:
    """The example of a rule."""
    data = json.loads(example_file(rule).read_bytes())
    configs = {name: "".join(f"{line}\n" for line in data[name]) for name in ("broken", "fine")}
    return Example(**{**data, **configs, "says": tuple(Said(**said) for said in data["says"])})
