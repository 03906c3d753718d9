"""The model of an explanation: values with their origins, steps with their reasons."""

import dataclasses

from imagegen.documents.yaml import YamlPath
from imagegen.settle.spec import Origin


@dataclasses.dataclass(frozen=True)
class Value:
    """One value, its origin and its description."""

    path: YamlPath
    value: object
    origin: Origin
    description: str


@dataclasses.dataclass(frozen=True)
class StepReason:
    """Why a step is in the plan of these targets, and which values it reads."""

    name: str
    summary: str
    targets: tuple[str, ...]
    because: str
    reads: tuple[str, ...]
    values: tuple[Value, ...]
    """The values of `reads`."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The explanation of a config for some targets."""

    name: str
    targets: tuple[str, ...]
    values: tuple[Value, ...]
    steps: tuple[StepReason, ...]
