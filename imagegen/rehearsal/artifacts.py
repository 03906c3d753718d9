"""Stand-ins of the artifacts that the steps download.

Each has the recorded contents of the release that is published at its URL. It is never made from what a step expects.
The URL of an override says by its ending how the same contents are packed.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from imagegen.base.errors import RefusedError
from imagegen.catalog.products import find_product
from imagegen.fetch.request import is_archive, shown_url
from imagegen.inspect.members import is_program
from imagegen.rehearsal.machine.answers import make_answer_file
from imagegen.rehearsal.machine.msi import make_msi
from imagegen.rehearsal.network.registries import make_tarball
from imagegen.rehearsal.releases import (
    ArchiveRelease,
    PackageRelease,
    fill_version,
    find_published,
    is_in_recorded_folder,
)
from imagegen.rehearsal.signing.program import make_program
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imagegen.base.errors import Problem
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.rehearsal.releases import PublishedFile
    from imagegen.steps.evaluate import EvaluatedStep

_PROGRAMS = (".exe", ".dll")
# Signs a file of an artifact: the artifact's name, the file's path in it, and its bytes.
Sign = Callable[[str, str, bytes], bytes]
_HINT = (
    "`imagegen catalog products` lists the records; add those of your own steps to their meta/releases.yml, and the "
    "`version` to their artifacts"
)


def make_artifacts(evaluated: Sequence[EvaluatedStep], sign: Sign | None = None) -> dict[str, bytes]:
    """Make the stand-in of every artifact. Returns their bytes by URL. `sign` signs their programs."""
    if problems := find_unrecorded(evaluated):
        raise RefusedError("some artifacts have no stand-in", problems=problems)
    together: dict[str, list[tuple[EvaluatedStep, ArtifactRequest]]] = {}
    for step in evaluated:
        for request in step.requests.values():
            together.setdefault(request.url, []).append((step, request))
    return {url: _bytes_for(asked, sign) for url, asked in together.items()}


def make_digests(evaluated: Sequence[EvaluatedStep], artifacts: Mapping[str, bytes]) -> dict[str, bytes]:
    """Make the digests that projects publish beside these artifacts, in the form of each project, by URL."""
    # Several files may share one list, and several artifacts one file.
    digests: dict[str, dict[str, None]] = {}
    for request in (request for step in evaluated for request in step.requests.values()):
        product = find_product(request.product)
        if product and product.digest and request.digest:
            sha256 = hashlib.sha256(artifacts[request.url]).hexdigest()
            line = f"  {request.url.rpartition('/')[2]}" if product.digest.form == "line" else ""
            digests.setdefault(request.digest.url, {})[f"{sha256}{line}\n"] = None
    return {url: "".join(lines).encode() for url, lines in digests.items()}


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
    is_plain = request.form == "file" and not is_in_recorded_folder(step.step, request)
    return is_plain or find_published(step.step, request) is not None


def _bytes_for(asked: Sequence[tuple[EvaluatedStep, ArtifactRequest]], sign: Sign | None) -> bytes:
    """The bytes at one URL, which several artifacts may have."""
    step, request = asked[0]
    if request.form == "image":
        names = (draft.fields["name"] for draft in step.drafts if draft.fields.get("artifact") == request.name)
        return make_tarball(ImageName.parse(str(next(names))))
    finish = functools.partial(sign, request.name) if sign else _leave
    name = _name(request.url)
    if request.own:
        members = _contents(asked)
        if is_archive(name) and members:
            return _pack(members, finish, is_zip=name.lower().endswith(".zip"))
        if is_program(name) and (program := _program(name, members)):
            return finish(name, program)
    published = find_published(step.step, request)
    if published is None:
        name = _name(request.published)
        return finish(name, _own_content(name, request))
    if sign and isinstance(published.release, ArchiveRelease):
        return _pack(_members(published), finish, is_zip=published.release.format == "zip")
    return finish(published.name, _stand_in(published))


def _leave(path: str, data: bytes) -> bytes:
    """A file that nobody signs."""
    del path
    return data


def _contents(asked: Sequence[tuple[EvaluatedStep, ArtifactRequest]]) -> dict[str, bytes | None]:
    """The files of the releases that are published, if they are not packages."""
    found: dict[str, bytes | None] = {}
    for step, request in asked:
        published, name = find_published(step.step, request), _name(request.published)
        if published is None:
            name = f"{name.partition('.')[0]}.exe" if is_archive(name) else name
            found[name] = _own_content(name, request)
        elif not isinstance(published.release, PackageRelease):
            found = {**_members(published), **found}
            # Files of one folder may be of different versions.
            found |= {name: _content(name, published.version)} if name in found else {}
    return found


def _program(name: str, members: dict[str, bytes | None]) -> bytes | None:
    """The program of a release that is published alone: the one with this name, or the only one."""
    programs = {_name(path): data for path, data in members.items() if path.lower().endswith(".exe")}
    return programs.get(name, next(iter(programs.values())) if len(programs) == 1 else None)


def _own_content(name: str, request: ArtifactRequest) -> bytes:
    """A file without a record. The config itself says whether it is a program: by its name on the machine."""
    content = _content(name)
    is_binary = any(file.name.lower().endswith(_PROGRAMS) for file in request.files)
    return make_program(content) if is_binary and not name.lower().endswith(_PROGRAMS) else content


def _name(url: str) -> str:
    return url.rpartition("/")[2]


def _members(published: PublishedFile) -> dict[str, bytes | None]:
    """The members of a release; None for a folder."""
    paths = published.release.members
    return {path: None if path.endswith("/") else _content(path, published.version) for path in paths}


def _stand_in(published: PublishedFile) -> bytes:
    release, members = published.release, _members(published)
    if isinstance(release, ArchiveRelease):
        return _pack(members, _leave, is_zip=release.format == "zip")
    if isinstance(release, PackageRelease):
        return _msi(release, published.version, members)
    return _content(published.name, published.version)


def _pack(members: dict[str, bytes | None], finish: Callable[[str, bytes], bytes], *, is_zip: bool) -> bytes:
    """An archive whose files are finished one by one, each with its path."""
    finished = {path: None if data is None else finish(path, data) for path, data in members.items()}
    return _zip(finished) if is_zip else _tar(finished)


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
