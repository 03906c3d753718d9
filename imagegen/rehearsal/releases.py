"""Records of the contents of published releases, from the catalogue and from meta/releases.yml of a step."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Literal

import pydantic

from imagegen.base.errors import ConfigError
from imagegen.catalog.facts import JsonObject, numbers
from imagegen.catalog.products import Product, find_product
from imagegen.config.problems import model_problems
from imagegen.rehearsal.machine.answers import AnswerCommand, AnswerFile, WillReboot
from imagegen.rehearsal.machine.msi import MsiService
from imagegen.steps.resource import Strict, WindowsPath

if TYPE_CHECKING:
    from imagegen.fetch.request import ArtifactRequest
    from imagegen.steps.model import Step


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

    def is_at(self, url: str, version: str) -> bool:
        """Whether one of its files has this URL in this version."""
        return any(url == fill_version(f"{self.address}/{name}", version) for name in self.published_files())

    def covers(self, version: str) -> bool:
        """Whether the record is about this version."""
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

    @property
    def rows(self) -> list[AnyRelease]:
        """All records."""
        return [*self.archives.values(), *self.folders.values(), *self.packages.values()]


AnyRelease = ArchiveRelease | FolderRelease | PackageRelease


@dataclasses.dataclass(frozen=True)
class PublishedFile:
    """One file of one version of a release."""

    release: AnyRelease
    version: str
    name: str


def fill_version(text: str, version: str) -> str:
    """Replace the placeholders in a text of a record with the version."""
    underscored = version.replace(".", "_")
    return text.replace("{version}", version).replace("{version_with_underscores}", underscored)


@functools.cache
def product_releases(name: str) -> tuple[AnyRelease, ...]:
    """The records of a product, each of a range of versions."""
    product = find_product(name)
    return tuple(_release(product, row) for row in product.contents) if product else ()


def _release(product: Product, row: JsonObject) -> AnyRelease:
    address, _, file = product.url.rpartition("/")
    if "registered_version" in row:
        return PackageRelease.model_validate({**row, "address": address, "file": file})
    if "format" in row:
        return ArchiveRelease.model_validate({**row, "address": address or product.base, "file": file})
    return FolderRelease.model_validate({**row, "address": address or product.base})


def find_published(step: Step, request: ArtifactRequest) -> PublishedFile | None:
    """The published file that an artifact is, whatever the URL from which it comes. None if it has no record."""
    name = request.published.rpartition("/")[2]
    for release in product_releases(request.product) if request.product else _own_releases(step):
        is_its = bool(request.product) or release.is_at(request.published, request.version)
        has_file = not isinstance(release, FolderRelease) or name in release.members
        if is_its and has_file and release.covers(request.version):
            return PublishedFile(release, request.version, name)
    return None


def is_in_recorded_folder(step: Step, request: ArtifactRequest) -> bool:
    """Whether records list the files beside an artifact."""
    folder = request.published.rpartition("/")[0]
    if request.product:
        return any(isinstance(one, FolderRelease) for one in product_releases(request.product))
    own = (one for one in _own_releases(step) if isinstance(one, FolderRelease))
    return any(fill_version(one.address, request.version) == folder for one in own)


def _own_releases(step: Step) -> list[AnyRelease]:
    """The records in meta/releases.yml of an operator's own step."""
    document = step.releases
    if document is None:
        return []
    try:
        return Releases.model_validate(document.data).rows
    except pydantic.ValidationError as error:
        problems = model_problems(error, document, Releases)
        raise ConfigError(f"the release records of step {step.name} are invalid", problems=problems) from None
