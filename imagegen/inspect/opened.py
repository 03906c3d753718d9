"""Opens a downloaded file as the artifacts that it is for: its format, and the digests of an archive's members."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from imagegen.inspect.archive import check_form, open_members, read_members
from imagegen.inspect.members import check_files

if TYPE_CHECKING:
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.inspect.archive import ArchiveContents, ArchiveFormat, OpenMember


@dataclasses.dataclass(frozen=True)
class OpenedArtifact:
    """A downloaded artifact. If it is an archive or a tarball of images, `format` says of which form; `contents` are
    the files of an archive that is unpacked."""

    name: str
    file: Path
    format: ArchiveFormat | None = None
    contents: ArchiveContents | None = None

    @property
    def members(self) -> dict[str, str] | None:
        """The sha256 of the files of the archive."""
        return self.contents.digests if self.contents else None

    def open(self) -> Iterator[OpenMember]:
        """Each file of the archive."""
        return open_members(self.file, self.format, self.name) if self.format else iter(())


def open_artifacts(requests: Sequence[ArtifactRequest], file: Path) -> dict[str, OpenedArtifact]:
    """The file as each of these artifacts. One that the plan cannot use is an error."""
    formats = {request.name: check_form(request, file) for request in requests}
    unpacked = [request for request in requests if formats[request.name] and request.form != "image"]
    # All of them have the format of the file.
    archive = next((formats[request.name] for request in unpacked), None)
    contents = read_members(file, archive, requests[0].name) if archive else None
    for request in unpacked:
        check_files(request, contents.digests if contents else {})
    of_archives = {request.name for request in unpacked}
    return {
        request.name: OpenedArtifact(
            request.name, file, formats[request.name], contents if request.name in of_archives else None
        )
        for request in requests
    }
