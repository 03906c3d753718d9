"""The effects of a script: the resources that must be so after it ran. They have the kinds of resources, without those
that need a download or a file of the bundle. The guest tests them with the kinds' own *test*."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import pydantic

from imagegen.steps.kinds import KINDS, PLANNED_AS, CommandLine, Recovery, Text, Unless
from imagegen.steps.resource import Name, Resource, WindowsPath

NONE: Final = "none"
"""The key of a script without effects. Its value is the reason."""
TESTED_KINDS: Final = frozenset({"command", "script", "update"})
"""The kinds that run a script when they are set, so that its effects can be tested then."""
DECLARING_KINDS: Final = TESTED_KINDS | {"file"}
"""The kinds that may have effects. A file is a script that runs on a node: nothing can be tested during the build."""


class MadeFile(Resource):
    """A file whose bytes only the script knows."""

    path: WindowsPath
    sha256: None = None

    @property
    def kind(self) -> str:
        return "file"

    def makes(self) -> tuple[str, ...]:
        return (self.path,)


class MadeService(Resource):
    """A service. A field that is null is not checked."""

    name: Name
    display_name: Text | None = None
    command: CommandLine | None = None
    start: Literal["automatic", "delayed", "manual", "disabled"] | None = None
    state: Literal["running", "stopped"] | None = None
    depends_on: list[Name] | None = None
    recovery: Recovery | None = None

    @property
    def kind(self) -> str:
        return "service"


class MadeRule(Resource):
    """A firewall rule, of several ports if they are divided by commas."""

    name: Name
    display_name: Text
    direction: Literal["in", "out"]
    action: Literal["allow", "block"]
    protocol: Literal["TCP", "UDP"]
    port: Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9,-]+$")]

    @property
    def kind(self) -> str:
        return "firewall"


class Output(Resource):
    """A setting that the output of a program of Windows shows."""

    name: Name
    program: WindowsPath
    unless: Unless

    @property
    def kind(self) -> str:
        return "command"


EFFECTS: Final[Mapping[str, type[Resource]]] = {
    **{
        name: KINDS[name]
        for name in ("acl", "defender", "directory", "environment", "feature", "path", "registry", "task")
    },
    **{"command": Output, "file": MadeFile, "firewall": MadeRule, "service": MadeService},
}


@dataclasses.dataclass(frozen=True)
class Effect:
    """One effect as plan.json has it."""

    kind: str
    label: str
    """Its kind and what tells it apart, for reasons."""
    fields: dict[str, object]


def plan_effect(kind: str, resource: Resource) -> Effect:
    """The effect of this kind as a plan has it."""
    return Effect(PLANNED_AS.get(kind, kind), f"{kind} {resource.label}", resource.planned().fields())
