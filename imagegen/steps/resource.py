"""The base of every kind of resource, and the types of their fields."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, NamedTuple, Self

import pydantic

from imagegen.base.errors import InvalidValue

if TYPE_CHECKING:
    from pydantic_core import InitErrorDetails

# An absolute Windows path: a drive, no forward slash, no trailing backslash, no character that Windows forbids in a
# name. No part may end with a dot or a space, which excludes '..' too.
WindowsPath = Annotated[
    str, pydantic.StringConstraints(pattern=r'^[A-Z]:(\\[^\\/:*?"<>|\x00-\x1f]*[^\\/:*?"<>|\x00-\x1f .])+$')
]
Sha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# In any case: PowerShell's Get-FileHash prints upper case.
PastedSha256 = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)]
# The digest of a document in a registry.
ImageDigest = Annotated[str, pydantic.StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Name = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
# The form that an artifact's bytes must have.
ArtifactForm = Literal["archive", "image", "package", "file"]
FIRST_BOOT: Final = "first-boot"
"""The `until` of a resource that a node may change after its first boot."""


class Fault(NamedTuple):
    """A fault that a section has if `holds` is true. `path` is the place in the section."""

    holds: object
    path: tuple[str | int, ...]
    message: str
    hint: str


def refuse(title: str, faults: Iterable[Fault]) -> None:
    """Raise one error with all faults that hold. Each is reported at its own place."""
    found: list[InitErrorDetails] = [
        {
            "type": "value_error",
            "loc": fault.path,
            "input": None,
            "ctx": {"error": InvalidValue(fault.message, fault.hint)},
        }
        for fault in faults
        if fault.holds
    ]
    if found:
        raise pydantic.ValidationError.from_exception_data(title, found)


class Strict(pydantic.BaseModel):
    """A closed, frozen and strict model: an unknown key is an error, and values are not converted to other types.

    pydantic builds each model when it is first used, because `imagegen validate` uses few of them and must start fast.
    For the same reason modules of models do not postpone their annotations, which pydantic would compile one by one at
    each start.
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    def without(self, *faults: Fault) -> Self:
        """The section itself, if it has none of these faults."""
        refuse(type(self).__name__, faults)
        return self


class Resource(Strict):
    """One thing that a machine must have."""

    outlives_sealing: ClassVar[bool] = True
    """Whether a sealed image still shows that it is as planned."""
    artifact_form: ClassVar[ArtifactForm] = "file"
    """The form of the artifacts that this kind can use."""

    @property
    def kind(self) -> str:
        """The name that steps use. That of `planned` is also the name of its script in packer/guest/kinds."""
        return type(self).__name__.lower()

    @property
    def label(self) -> str:
        """The label that is unique among the resources of this kind: the value of its first field."""
        return str(next(value for _, value in self))

    @property
    def may_restart(self) -> bool:
        """Whether Windows may need a restart after *set*."""
        return False

    @property
    def artifact_name(self) -> str | None:
        """The artifact that *set* needs, if any."""
        name: str | None = dict(self).get("artifact")
        return name

    def planned(self) -> "Resource":
        """The same resource as the plan has it. A kind without a script returns a resource of a kind with one."""
        return self

    def makes(self) -> tuple[str, ...]:
        """The paths that exist after *set*."""
        return ()

    def needs(self) -> tuple[str, ...]:
        """The paths that must exist before *set*."""
        return ()

    def fields(self) -> dict[str, object]:
        """The fields as plan.json has them."""
        return self.model_dump(mode="json")
