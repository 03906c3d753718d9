"""The AWS of a rehearsal: moto, with what it lacks for a Windows build added at its edge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# moto asks boto3 while it is imported, and boto3 then reads the user's profile, which need not even be there. And
# nothing should be found that is not there: moto's sample images, which also take long to load.
IMPORT_VARIABLES: Final[Mapping[str, str | None]] = {
    "AWS_PROFILE": None,
    "AWS_DEFAULT_PROFILE": None,
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}
