"""The files of the two documents about a manifest: the attestation and the SBOM."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from imagegen.record.store import ATTESTATION, SBOM


@dataclasses.dataclass(frozen=True)
class DocumentFiles:
    """Where the documents are."""

    attestation: Path
    sbom: Path

    @classmethod
    def of(cls, manifest: Path, folder: Path | None) -> DocumentFiles:
        """Beside the manifest, or in another folder."""
        start = (folder or manifest.parent) / manifest.stem
        return cls(Path(f"{start}{ATTESTATION}"), Path(f"{start}{SBOM}"))
