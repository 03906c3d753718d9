"""The stand-in of AWS: moto, with extensions for what it lacks for a Windows build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# moto uses boto3 at its import, which reads the user's profile, even if that does not exist. moto's sample images are
# not wanted: a build must not find them, and they take long to load.
IMPORT_VARIABLES: Final[Mapping[str, str | None]] = {
    "AWS_PROFILE": None,
    "AWS_DEFAULT_PROFILE": None,
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}
