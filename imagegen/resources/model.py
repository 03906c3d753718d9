"""The base of every kind of resource, and the small typed words their fields are made of."""

from typing import Annotated, ClassVar, Literal

import pydantic

# An absolute Windows path: a drive, no forward slash, no '..', no trailing backslash, nothing that Windows
# forbids in a name; no part may end in a dot, which forbids '..' too.
WindowsPath = Annotated[
    str, pydantic.StringConstraints(pattern=r'^[A-Z]:(\\[^\\/:*?"<>|\x00-\x1f]*[^\\/:*?"<>|\x00-\x1f .])+$')
]
Sha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# As people paste it: PowerShell's Get-FileHash prints upper case.
PastedSha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)]
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
# What an artifact's bytes must be.
ArtifactForm = Literal["archive", "package", "file"]


class Strict(pydantic.BaseModel):
    """Closed and frozen: an unknown key is an error, a value of another type is not converted.

    A model is built when it is first used: `imagegen validate` uses few of them and is to start fast. As much for that,
    modules of models do not postpone their annotations, which pydantic would compile one by one at every start, and
    write a field's words as its default.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)


class Resource(Strict):
    """One thing a machine must have. `kind` names its script in packer/guest/kinds and its behaviour on the model."""

    kind: ClassVar[str]
    may_restart: ClassVar[bool] = False
    artifact_form: ClassVar[ArtifactForm] = "file"
    """What the bytes of the artifact must be that this kind uses."""

    @property
    def label(self) -> str:
        """What tells this resource from others of its kind."""
        raise NotImplementedError

    @property
    def artifact_name(self) -> str | None:
        """The artifact whose bytes *set* needs, if any."""
        return None

    def makes(self) -> tuple[str, ...]:
        """Paths that are there afterwards."""
        return ()

    def needs(self) -> tuple[str, ...]:
        """Paths that must be there before."""
        return ()

    def fields(self) -> dict[str, object]:
        """The fields as plan.json carries them."""
        return self.model_dump(mode="json")
