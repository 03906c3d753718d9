"""Stand-ins of the artifacts that the steps download.

Each has the recorded contents of the release that is published at its URL. It is never made from what a step expects.
"""

from __future__ import annotations

import functools
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from imagegen.artifacts.request import shown_url
from imagegen.errors import RefusedError
from imagegen.rehearsal.machine.answers import make_answer_file
from imagegen.rehearsal.machine.msi import make_msi
from imagegen.rehearsal.network.registries import make_tarball
from imagegen.rehearsal.releases import ArchiveRelease, PackageRelease, fill_version, releases_for
from imagegen.rehearsal.signing.program import make_program
from imagegen.resources.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.errors import Problem
    from imagegen.rehearsal.releases import PublishedFile
    from imagegen.steps.evaluate import EvaluatedStep

_PROGRAMS = (".exe", ".dll")
# Signs a file of an artifact: the artifact's name, the file's path in it, and its bytes.
Sign = Callable[[str, str, bytes], bytes]
_HINT = "`imagegen catalog releases` lists the records; add those of your own steps to their meta/releases.yml"


def make_artifacts(evaluated: Sequence[EvaluatedStep], sign: Sign | None = None) -> dict[str, bytes]:
    """Make the stand-in of every artifact. Returns their bytes by URL. `sign` signs their programs."""
    if problems := find_unrecorded(evaluated):
        raise RefusedError("some artifacts have no stand-in", problems=problems)
    return {request.url: _bytes_for(step, request, sign) for step in evaluated for request in step.requests.values()}


def find_unrecorded(evaluated: Sequence[EvaluatedStep]) -> list[Problem]:
    """Find artifacts whose release is not recorded: the contents of their stand-ins are unknown."""
    return [
        step.step.described.problem(
            ("artifacts", name), f"no release is recorded for {shown_url(request.published)}", _HINT
        )
        for step in evaluated
        for name, request in step.requests.items()
        if not _is_recorded(step, request)
    ]


def _is_recorded(step: EvaluatedStep, request: ArtifactRequest) -> bool:
    """Whether the artifact has a record. A single file has no members, and needs one only if its folder has one; the
    config itself says which image a tarball has."""
    if request.form == "image":
        return True
    releases = releases_for(step.step)
    is_plain = request.form == "file" and not releases.has_folder_of(request.published)
    return is_plain or releases.find(request.published) is not None


def _bytes_for(step: EvaluatedStep, request: ArtifactRequest, sign: Sign | None) -> bytes:
    if request.form == "image":
        names = (draft.fields["name"] for draft in step.drafts if draft.fields.get("artifact") == request.name)
        return make_tarball(ImageName.parse(str(next(names))))
    published = releases_for(step.step).find(request.published)
    if published is not None and isinstance(published.release, ArchiveRelease):
        return _stand_in(published) if sign is None else _archive(published, functools.partial(sign, request.name))
    name = request.published.rpartition("/")[2]
    data = _stand_in(published) if published else _content(name)
    return data if sign is None else sign(request.name, name, data)


def _stand_in(published: PublishedFile) -> bytes:
    release, version = published.release, published.version
    if isinstance(release, ArchiveRelease):
        return _archive(published, lambda _, data: data)
    if isinstance(release, PackageRelease):
        return _msi(release, version, _members(published))
    return _content(published.name, version)


def _archive(published: PublishedFile, finish: Callable[[str, bytes], bytes]) -> bytes:
    """An archive whose files are finished one by one, each with its path."""
    members = {path: None if data is None else finish(path, data) for path, data in _members(published).items()}
    is_zip = isinstance(published.release, ArchiveRelease) and published.release.format == "zip"
    return _zip(members) if is_zip else _tar(members)


def _members(published: PublishedFile) -> dict[str, bytes | None]:
    """The members of a release; None for a folder."""
    paths = published.release.members
    return {path: None if path.endswith("/") else _content(path, published.version) for path in paths}


def _content(path: str, version: str = "") -> bytes:
    """The bytes of a program or a text, depending on its name. They hold the version, which a booted machine reads."""
    text = f"a stand-in for {path}{f' {version}' if version else ''}, made for a rehearsal\n".encode()
    is_library = path.lower().endswith(".dll")
    return make_program(text, is_library=is_library) if path.lower().endswith(_PROGRAMS) else text


def _msi(release: PackageRelease, version: str, members: dict[str, bytes | None]) -> bytes:
    paths = {f"{release.folder}\\{path}".replace("/", "\\"): data for path, data in members.items()}
    paths |= make_answer_files(release)
    services = [
        service.model_copy(update={"command": service.command.replace("{folder}", release.folder)})
        for service in release.services
    ]
    return make_msi(
        fill_version(release.product, version),
        fill_version(release.registered_version, version),
        {path: data for path, data in paths.items() if data is not None},
        services,
        [path.rstrip("\\") for path, data in paths.items() if data is None],
    )


def make_answer_files(release: PackageRelease) -> dict[str, bytes]:
    """The answer files of Windows Setup that the package installs, by their path."""
    return {
        f"{release.folder}\\{one.member}".replace("/", "\\"): make_answer_file(one.answers(release.folder))
        for one in release.answer_files
    }


def _tar(members: dict[str, bytes | None]) -> bytes:
    buffer = io.BytesIO()
    # Without time and compression, the bytes and therefore the lock are the same in every rehearsal.
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=0, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for path, data in members.items():
            entry = tarfile.TarInfo(path)
            entry.type = tarfile.DIRTYPE if data is None else tarfile.REGTYPE
            entry.size = len(data or b"")
            archive.addfile(entry, io.BytesIO(data or b""))
    return buffer.getvalue()


def _zip(members: dict[str, bytes | None]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in members.items():
            archive.writestr(zipfile.ZipInfo(path), data or b"")
    return buffer.getvalue()
