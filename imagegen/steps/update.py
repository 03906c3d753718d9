"""The kind of Windows updates, and the types that it shares with other kinds."""

from typing import Annotated, ClassVar, Final, Self

import pydantic

from imagegen.steps.resource import Name, Resource, Sha256, Strict

POWERSHELL: Final = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
Text = Annotated[str, pydantic.StringConstraints(min_length=1)]
ENGINE_MODULE: Final = "common.psm1"
"""The module of the engine that scripts on a node can use too. Every bundle has it."""
BundledFile = Annotated[str, pydantic.StringConstraints(pattern=r"^(common\.psm1|files/[a-z0-9-]+/[A-Za-z0-9._-]+)$")]


class WantedKb(Strict):
    """An update by its number. A cumulative update brings a revision of Windows, which later ones replace."""

    kb: Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]
    ubr: Annotated[int, pydantic.Field(ge=0)] | None = None


class UpdateCode(Strict):
    """What a code of Windows Update means."""

    code: Annotated[str, pydantic.StringConstraints(pattern=r"^0x[0-9a-f]{8}$")]
    means: Text


_Guid = Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}$")]
# What is in quotes on netsh's command line.
_Quoted = Annotated[str, pydantic.StringConstraints(pattern=r"^[!#-~]*$")]


class Update(Resource):
    """Windows updates, installed by Windows Update in as many rounds as the step has, with a restart after each."""

    outlives_sealing: ClassVar[bool] = False
    name: Name
    source: BundledFile
    sha256: Sha256
    rounds: Annotated[int, pydantic.Field(ge=1, le=10)]
    categories: list[_Guid] = []
    kbs: list[WantedKb] = []
    exclude: list[Annotated[str, pydantic.StringConstraints(pattern=r"^KB[0-9]{6,8}$")]] = []
    proxy: Annotated[_Quoted, pydantic.StringConstraints(min_length=1)] | None = None
    """As netsh takes it for WinHTTP. Set for the time of a round."""
    bypass: _Quoted = ""
    codes: list[UpdateCode] = []
    """What codes of Windows Update mean, for the message of a failure."""

    @pydantic.model_validator(mode="after")
    def _wants_something(self) -> Self:
        if not self.categories and not self.kbs:
            raise ValueError("must have categories or kbs")
        return self

    @property
    def may_restart(self) -> bool:
        return True

    def needs(self) -> tuple[str, ...]:
        return (POWERSHELL,)
