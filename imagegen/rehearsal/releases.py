"""Records of the contents of published releases, from the catalogue and from meta/releases.yml of a step."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Annotated, Literal

import pydantic

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import numbers, table
from imagegen.config.problems import model_problems
from imagegen.rehearsal.machine.answers import AnswerCommand, AnswerFile, WillReboot
from imagegen.rehearsal.machine.msi import MsiService
from imagegen.steps.resource import Strict, WindowsPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagegen.steps.model import Step

_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_PRERELEASE = re.compile(rf"{_VERSION.pattern}-[0-9A-Za-z.]+")


class Release(Strict):
    """The members of a range of versions. A member that ends with a slash is a folder."""

    address: str
    """The URL of its folder, with the placeholders {version} and {version_with_underscores}."""
    since: str | None = None
    before: str | None = None
    members: list[str]
    left_out: str | None = None
    """Members that are not in the list."""
    unconfirmed: str | None
    """What was taken from `source` and not from the published file itself."""
    source: str

    def published_files(self) -> list[str]:
        """The names under which it is published."""
        raise NotImplementedError

    def version_at(self, url: str) -> str | None:
        """The version that is published at this URL; None if the URL belongs to another release."""
        places = [f"{self.address}/{name}" for name in self.published_files()]
        return next((version for version in _versions(places, url) if self._covers(version)), None)

    def _covers(self, version: str) -> bool:
        number = numbers(version)
        return not (self.since and number < numbers(self.since)) and not (
            self.before and number >= numbers(self.before)
        )


class ArchiveRelease(Release):
    """A release that is one archive."""

    file: str
    format: Literal["tar.gz", "zip"]

    def published_files(self) -> list[str]:
        return [self.file]


class FolderRelease(Release):
    """A release of files that are published one by one."""

    def published_files(self) -> list[str]:
        return self.members

    def is_beside(self, url: str) -> bool:
        """Whether the URL is in this folder, for any version."""
        return next(_versions([self.address], url.rpartition("/")[0]), None) is not None


class AnswerFileRecord(Strict):
    """The contents of a member that is an answer file of Windows Setup."""

    member: str
    settings: list[Annotated[str, pydantic.StringConstraints(pattern=r"^\S+ \S+ [^\s=]+=.*$")]]
    """Each is pass, component, and the path of the element with its value."""
    command: str
    """The command of the specialize pass, with the placeholder {folder} for the package's folder."""
    will_reboot: WillReboot

    def answers(self, folder: str) -> AnswerFile:
        """What the file says after the installation."""
        settings: dict[str, dict[str, dict[str, str]]] = {}
        for line in self.settings:
            name, component, element = line.split(" ", 2)
            path, _, value = element.partition("=")
            settings.setdefault(name, {}).setdefault(component, {})[path] = value
        command = AnswerCommand(path=self.command.replace("{folder}", folder), will_reboot=self.will_reboot)
        return AnswerFile(settings=settings, commands=[command])


class PackageRelease(Release):
    """A release that is one MSI package, with what it installs. Members are below `folder`."""

    file: str
    product: str
    registered_version: str
    folder: WindowsPath
    services: list[MsiService] = []
    answer_files: list[AnswerFileRecord] = []

    def published_files(self) -> list[str]:
        return [self.file]


class Releases(Strict):
    """The records of releases, by name."""

    archives: dict[str, ArchiveRelease] = {}
    folders: dict[str, FolderRelease] = {}
    packages: dict[str, PackageRelease] = {}

    def find(self, url: str) -> PublishedFile | None:
        """The file that is published at this URL; None if it has no record."""
        releases: list[ArchiveRelease | FolderRelease | PackageRelease] = [
            *self.archives.values(),
            *self.folders.values(),
            *self.packages.values(),
        ]
        for release in releases:
            version = release.version_at(url)
            if version is not None:
                return PublishedFile(release, version, url.rpartition("/")[2])
        return None

    def has_folder_of(self, url: str) -> bool:
        """Whether a record lists the files in the folder of this URL."""
        return any(release.is_beside(url) for release in self.folders.values())


@dataclasses.dataclass(frozen=True)
class PublishedFile:
    """One file of one version of a release."""

    release: ArchiveRelease | FolderRelease | PackageRelease
    version: str
    name: str


def fill_version(text: str, version: str) -> str:
    """Replace the placeholders in a text of a record with the version."""
    underscored = version.replace(".", "_")
    return text.replace("{version}", version).replace("{version_with_underscores}", underscored)


def _versions(places: Sequence[str], url: str) -> Iterator[str]:
    """The versions for which one of the URLs with placeholders is this URL."""
    if any(url.startswith(place.partition("{")[0]) for place in places):
        # A pre-release at the end of a file's name has the name's ending too.
        previews = [version for found in _PRERELEASE.findall(url) for version in (found, found.rpartition(".")[0])]
        for version in (*_VERSION.findall(url), *previews, ""):
            if url in [fill_version(place, version) for place in places]:
                yield version


@functools.cache
def catalogued_releases() -> Releases:
    """The records of the catalogue."""
    sections = {name: rows for name, rows in table("releases").items() if name in Releases.model_fields}
    return Releases.model_validate(sections)


def releases_for(step: Step) -> Releases:
    """The records for a step: its own, then those of the catalogue."""
    known, document = catalogued_releases(), step.releases
    if document is None:
        return known
    try:
        own = Releases.model_validate(document.data)
    except pydantic.ValidationError as error:
        problems = model_problems(error, document, Releases)
        raise ConfigError(f"the release records of step {step.name} are invalid", problems=problems) from None
    return Releases(
        archives={**own.archives, **known.archives},
        folders={**own.folders, **known.folders},
        packages={**own.packages, **known.packages},
    )
