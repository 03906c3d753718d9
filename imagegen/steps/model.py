"""What a step's folder says about the step."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Literal

import pydantic

from imagegen.contents import read_folder
from imagegen.documents.yaml import read_yaml
from imagegen.resources.model import Name, Strict

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.documents.yaml import Document


# It becomes the tag `<component>_version`.
ComponentName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,40}$")]


class ArtifactMeta(Strict):
    """Where an artifact comes from unless the config's `override` says otherwise: `base`/`path`, or one `url`.

    `component` names what it brings, in the `version` that tags and manifests show.
    """

    override: Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9_]+_url$")]
    url: str | None = None
    base: str | None = None
    path: str | None = None
    when: str | None = None
    component: ComponentName | None = None
    version: str | None = None

    @pydantic.model_validator(mode="after")
    def _one_form(self) -> ArtifactMeta:
        if (self.url is None) == (self.base is None) or (self.base is None) != (self.path is None):
            raise ValueError("give either url, or base and path")
        if (self.component is None) != (self.version is None):
            raise ValueError("give component and version together")
        return self


OptionValue = str | int | bool | list[str]


class OptionMeta(Strict):
    """An option of an operator's own step, which the config's `step_options` gives; required without a default."""

    type: Literal["string", "integer", "boolean", "list"]
    default: OptionValue | None = None
    description: Annotated[str, pydantic.StringConstraints(min_length=10)]
    example: OptionValue

    @pydantic.model_validator(mode="after")
    def _values_fit(self) -> OptionMeta:
        for name, value in (("default", self.default), ("example", self.example)):
            if value is not None and not self.takes(value):
                raise ValueError(f"the {name} must be of the type {self.type}")
        return self

    def takes(self, value: object) -> bool:
        """Whether a value is of the option's type."""
        match self.type:
            case "string":
                return isinstance(value, str)
            case "integer":
                return isinstance(value, int) and not isinstance(value, bool)
            case "boolean":
                return isinstance(value, bool)
            case "list":
                return isinstance(value, list) and all(isinstance(item, str) for item in value)


class StepMeta(Strict):
    """meta/step.yml. A `when` is an expression over what the step reads; what has none is always there.

    The step follows the steps of `after`, and the restarts of `needs_restart_of`. With `rounds`, its resources are
    repeated, and a restart follows each round.
    """

    summary: Annotated[str, pydantic.StringConstraints(min_length=10)]
    when: str | None = None
    after: list[Name] = []
    needs_restart_of: list[Name] = []
    rounds: Annotated[int, pydantic.Field(ge=1, le=10)] = 1
    reads: list[str]
    timeout_s: Annotated[int, pydantic.Field(ge=10, le=14400)]
    artifacts: dict[Name, ArtifactMeta] = {}
    options: dict[ComponentName, OptionMeta] = {}


@dataclasses.dataclass(frozen=True)
class Step:
    """A step's folder: meta/step.yml is read, the rest when it is needed."""

    name: str
    folder: Path
    shown_as: str
    meta: StepMeta
    described: Document
    """meta/step.yml with its lines."""

    @functools.cached_property
    def resources(self) -> Document:
        """resources.yml."""
        return read_yaml(self.folder / "resources.yml", f"{self.shown_as}/resources.yml")

    @functools.cached_property
    def releases(self) -> Document | None:
        """meta/releases.yml, where the step has one: what the files hold that it downloads, for a rehearsal."""
        file = self.folder / "meta/releases.yml"
        return read_yaml(file, f"{self.shown_as}/meta/releases.yml") if file.exists() else None

    @functools.cached_property
    def templates(self) -> dict[str, str]:
        """Texts that are rendered on the host, by name."""
        return {name: text.decode() for name, text in read_folder(self.folder / "templates").items()}

    @functools.cached_property
    def files(self) -> dict[str, bytes]:
        """Static files, by name."""
        return read_folder(self.folder / "files")
