"""The signatures that the machine must find on its programs, from the lock. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.artifacts.lock import WHOLE_FILE
from imagegen.plan.model import PlannedSignature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imagegen.artifacts.lock import LockedArtifact


def plan_signatures(artifacts: Iterable[LockedArtifact]) -> Mapping[str, PlannedSignature]:
    """The signature of each signed file by the sha256 of the file. Empty if the lock has none."""
    return {
        artifact.sha256 if file == WHOLE_FILE else (artifact.members or {})[file]: PlannedSignature(
            signer=one.signer,
            thumbprint=one.thumbprint,
            root=one.root.subject,
            root_thumbprint=one.root.thumbprint,
            hidden=None if one.by == "own" else one.by,
        )
        for artifact in artifacts
        for file, one in (artifact.signed or {}).items()
    }
