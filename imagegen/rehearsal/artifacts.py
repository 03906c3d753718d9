"""Stand-ins of the artifacts that the steps download.

Each has the recorded contents of the release that is published at its URL. It is never made from what a step expects.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from typing import TYPE_CHECKING

from imagegen.artifacts.request import shown_url
from imagegen.catalog.publishing import find_digest_form
from imagegen.errors import RefusedError
from imagegen.rehearsal.machine.answers import make_answer_file
from imagegen.rehearsal.machine.msi import make_msi
from imagegen.rehearsal.network.registries import make_tarball
from imagegen.rehearsal.releases import ArchiveRelease, PackageRelease, fill_version, releases_for
from imagegen.resources.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.artifacts.request import ArtifactRequest
    from imagegen.errors import Problem
    from imagegen.rehearsal.releases import PublishedFile
    from imagegen.steps.evaluate import EvaluatedStep

_PROGRAMS = (".exe", ".dll")
_HINT = "`imagegen catalog releases` lists the records; add those of your own steps to their meta/releases.yml"


def make_artifacts(evaluated: Sequence[EvaluatedStep]) -> dict[str, bytes]:
    """Make the stand-in of every artifact. Returns their bytes by URL."""
    if problems := find_unrecorded(evaluated):
        raise RefusedError("some artifacts have no stand-in", problems=problems)
    return {request.url: _bytes_for(step, request) for step in evaluated for request in step.requests.values()}


def make_digests(evaluated: Sequence[EvaluatedStep], artifacts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Make the digests that projects publish beside these artifacts, in the form of each project, by URL."""
    digests: dict[str, bytes] = {}
    for request in (request for step in evaluated for request in step.requests.values()):
        form = find_digest_form(request.published)
        if form and request.digest:
            sha256 = hashlib.sha256(artifacts[request.url]).hexdigest()
            line = f"  {request.url.rpartition('/')[2]}" if form.form == "line" else ""
            # Several files may share one list.
            digests[request.digest.url] = digests.get(request.digest.url, b"") + f"{sha256}{line}\n".encode()
    return digests


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


def _bytes_for(step: EvaluatedStep, request: ArtifactRequest) -> bytes:
    if request.form == "image":
        names = (draft.fields["name"] for draft in step.drafts if draft.fields.get("artifact") == request.name)
        return make_tarball(ImageName.parse(str(next(names))))
    published = releases_for(step.step).find(request.published)
    return _stand_in(published) if published else _content(request.published.rpartition("/")[2])


def _stand_in(published: PublishedFile) -> bytes:
    release = published.release
    version = published.version
    members = {path: None if path.endswith("/") else _content(path, version) for path in release.members}
    if isinstance(release, ArchiveRelease):
        return _zip(members) if release.format == "zip" else _tar(members)
    if isinstance(release, PackageRelease):
        return _msi(release, version, members)
    return _content(published.name, version)


def _content(path: str, version: str = "") -> bytes:
    """The bytes of a program or a text, depending on its name. They hold the version, which a booted machine reads."""
    text = f"a stand-in for {path}{f' {version}' if version else ''}, made for a rehearsal\n".encode()
    return b"MZ " + text if path.lower().endswith(_PROGRAMS) else text


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
