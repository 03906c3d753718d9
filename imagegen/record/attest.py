"""Makes the documents about a manifest, signed or not, and writes them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

from imagegen.base.files import write_file
from imagegen.record.document_files import DocumentFiles
from imagegen.record.manifest_file import ManifestFile
from imagegen.record.sbom import make_sbom
from imagegen.record.statement import Statement, make_statement, statement_bytes

Sign = Callable[[Statement], bytes]
"""What puts a statement into an envelope with its signature."""


@dataclasses.dataclass(frozen=True)
class Documents:
    """The bytes of both documents."""

    attestation: bytes
    sbom: bytes

    def write(self, files: DocumentFiles) -> None:
        """Write both, the attestation last: it has the digest of the SBOM."""
        write_file(files.sbom, self.sbom)
        write_file(files.attestation, self.attestation)


def make_documents(file: ManifestFile, sign: Sign | None) -> Documents:
    """The documents about a manifest. Without `sign` the attestation is the statement alone."""
    sbom = make_sbom(file)
    statement = make_statement(file, hashlib.sha256(sbom).hexdigest())
    return Documents(sign(statement) if sign else statement_bytes(statement), sbom)
