"""The lock: artifacts and base images as they were looked up. `imagegen lock` writes it beside the user's config.

Every digest in a lock was computed from downloaded bytes. A lock comes from a repository, so it is not trusted:
its model is closed and bounded, and its entries must match what the config requests.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import fnmatch
import hashlib
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import pydantic

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.files import read_file
from imagegen.fetch.download import LIMIT_BYTES
from imagegen.fetch.request import ArtifactRequest, host_of
from imagegen.inspect.archive import LIMIT_MEMBERS, LONGEST_PATH, is_member
from imagegen.oci.names import LockedImage
from imagegen.oci.tarball import TarballImages, WholeImageName
from imagegen.steps.resource import Name, Sha256, Strict

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# The member lists of the largest archives take a few megabytes.
_LIMIT_LOCK_BYTES: Final = 64 * 2**20
_SHOWN_PROBLEMS: Final = 10
_LONGEST_CERTIFICATE: Final = 32 * 1024
TIME_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"
# The file itself, among the members of an archive.
WHOLE_FILE: Final = ""
# The characters of clouds' names, ids, versions and patterns. None of them is special in HCL or a shell.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_/*-][A-Za-z0-9 ._:/()*?\[\]@'+,=-]{0,255}")


def _check(is_valid: Callable[[str], object], fault: str) -> pydantic.AfterValidator:
    """A validator of texts. Its message begins with the text."""

    def check(text: str) -> str:
        if not is_valid(text):
            raise ValueError(f"{text[:80]!a} {fault}")
        return text

    return pydantic.AfterValidator(check)


def _not_a_boolean(value: object) -> object:
    # A literal compares by value, and True equals 1.
    if isinstance(value, bool):
        raise ValueError("must be 1")
    return value


def _distinct_on_windows(members: dict[str, str] | None) -> dict[str, str] | None:
    if members is not None and len({path.casefold() for path in members}) != len(members):
        raise ValueError("two members have names that differ only in case, which is one file on Windows")
    return members


def _is_time(text: str) -> bool:
    try:
        return datetime.datetime.strptime(text, TIME_FORM).strftime(TIME_FORM) == text
    except ValueError:
        return False


def _is_base64(text: str) -> bool:
    try:
        return len(text) <= _LONGEST_CERTIFICATE and bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


Plain = Annotated[str, _check(_PLAIN.fullmatch, "is not a valid name")]
Address = Annotated[str, _check(re.compile(r"https://[!-~]{1,2040}").fullmatch, "must start with https://")]
Member = Annotated[
    str,
    _check(
        lambda path: len(path) <= LONGEST_PATH and is_member(path),
        "is not a valid path of an archive member on Windows",
    ),
]
SignedFile = Annotated[
    str,
    _check(
        lambda path: path == WHOLE_FILE or (len(path) <= LONGEST_PATH and is_member(path)),
        "is not a valid path of a file",
    ),
]
Members = Annotated[
    dict[Member, Sha256], pydantic.Field(max_length=LIMIT_MEMBERS), pydantic.AfterValidator(_distinct_on_windows)
]
Size = Annotated[int, pydantic.Field(ge=0, le=LIMIT_BYTES)]
Answers = Annotated[dict[Name, Plain], pydantic.Field(max_length=32)]
Subject = Annotated[
    str, _check(lambda text: 0 < len(text) <= 1024 and text.isprintable(), "is not a valid subject of a certificate")
]
Encoded = Annotated[str, _check(_is_base64, "is not valid base64")]
Time = Annotated[str, _check(_is_time, "is not a valid time, such as 2026-01-31T12:00:00Z")]
WithoutQuery = Annotated[Address, _check(lambda url: not {"?", "#"} & set(url), "must have no query")]
_WITHOUT_QUERY: Final = pydantic.TypeAdapter[str](WithoutQuery)
SignedBy = Literal["own", "nested", "catalogue"]
"""The signature that counts: the file's own, one nested in it because its first has a weak digest, or a catalogue's."""
HostText = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z0-9.-]{1,253}(:[0-9]{1,5})?$")]
LabelName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
LabelValue = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,200}$")]


class LockedIssuer(Strict):
    """A certificate above the one that signed a file."""

    subject: Subject
    thumbprint: Sha256


class LockedSignature(Strict):
    """Who signed a file: the subject and the sha256 of the certificate, those above it, and the root. `timestamp` is
    the time of the signature, if an authority confirmed it, and `timestamp_root` the root above that authority."""

    signer: Subject
    thumbprint: Sha256
    sha1: Annotated[str, pydantic.StringConstraints(pattern=r"^[0-9a-f]{40}$")] | None = None
    """The SHA-1 of the certificate, which Windows calls its thumbprint."""
    by: SignedBy = "own"
    issuers: Annotated[list[LockedIssuer], pydantic.Field(max_length=10)] = []
    """The certificates between the signer's and the root, from the signer up."""
    root: LockedIssuer
    timestamp: Time | None = None
    timestamp_root: LockedIssuer | None = None
    certificate: Encoded | None = None
    """The certificate of who signed a script, as DER in base64: nodes that run only signed scripts must know it."""

    @pydantic.model_validator(mode="after")
    def _certificate_is_the_signers(self) -> Self:
        if self.certificate and hashlib.sha256(base64.b64decode(self.certificate)).hexdigest() != self.thumbprint:
            raise ValueError("certificate: its sha256 is not the thumbprint")
        return self


class LockedArtifact(Strict):
    """One download: its URL, and what its bytes were. `members` lists the files of an archive by their paths without
    `./`, `images` the container images of a tarball."""

    url: Address
    release: Address | None = None
    """The public URL of its release, if `url` is another one. The same release has the same bytes at every URL."""
    redirected_to: WithoutQuery | None = None
    """Where the bytes came from, if the URL redirects. For people: nothing is downloaded from there."""
    sha256: Sha256
    size: Size
    members: Members | None = None
    sizes: Annotated[dict[Member, Size], pydantic.Field(max_length=LIMIT_MEMBERS)] | None = None
    """Of the members, in bytes."""
    dotted: Literal["all", "some"] | None = None
    """Which members have `./` before their paths in the archive. tar.exe counts it as a folder that can be stripped."""
    images: TarballImages | None = None
    confirmed: Annotated[list[WithoutQuery], pydantic.Field(min_length=1, max_length=10)] | None = None
    """Where a digest was published that agrees."""
    published: Time | None = None
    """When the file was published, if that is known."""
    signed: Annotated[dict[SignedFile, LockedSignature], pydantic.Field(max_length=LIMIT_MEMBERS)] | None = None
    """The signatures by the member that has one, or WHOLE_FILE. None if signatures were not checked."""
    not_programs: Annotated[list[SignedFile], pydantic.Field(max_length=LIMIT_MEMBERS)] = []
    """The files that were checked and need no signature, because they are no programs."""

    @pydantic.model_validator(mode="after")
    def _signed_files_exist(self) -> Self:
        if unknown := sorted({*(self.signed or ()), *self.not_programs} - {WHOLE_FILE, *(self.members or ())}):
            raise ValueError(f"signed: {unknown[0][:80]!a} is not one of the members")
        return self

    @pydantic.model_validator(mode="after")
    def _sizes_are_of_the_members(self) -> Self:
        if self.sizes is not None and self.sizes.keys() != (self.members or {}).keys():
            raise ValueError("sizes: it must have each of the members, and nothing else")
        return self

    def answers(self, request: ArtifactRequest) -> bool:
        """Whether this entry matches the request: URL, digest, and what the lock lists of a file of this form. An older
        lock has no sizes of an archive's members."""
        return (
            self.url == request.url
            and request.sha256 in (None, self.sha256)
            and (request.may_be_plain if self.members is None else request.may_be_archive)
            and (self.members is None) == (self.sizes is None)
            and (self.images is not None) == (request.form == "image")
        )

    def is_release_of(self, request: ArtifactRequest) -> bool:
        """Whether this entry of the same name is of the release that is requested now, whatever its URL.

        If no release is known, a file with the same name is the same. A mirror has the URL of its original at the end
        of its own."""
        is_copy = request.url != self.url and request.url.endswith(f"/{self.url.removeprefix('https://')}")
        if is_copy or (self.release or self.url) == request.published:
            return True
        has_release = request.published != request.url
        return request.own and not has_release and not self.release and _file_name(self.url) == _file_name(request.url)


def _file_name(url: str) -> str:
    return urllib.parse.urlsplit(url).path.rpartition("/")[2]


def release_of(request: ArtifactRequest) -> str | None:
    """The release of a request as a lock has it."""
    return None if request.published == request.url else request.published


def recorded_redirect(url: str) -> str | None:
    """A redirect as a lock has it; None for one that no lock can have: a server chose it."""
    try:
        return _WITHOUT_QUERY.validate_python(url)
    except pydantic.ValidationError:
        return None


@dataclasses.dataclass(frozen=True)
class BaseForm:
    """The keys that describe a cloud's base images, each with a regular expression for its value."""

    identity: Mapping[str, str]
    place: Mapping[str, str]


class LockedBase(Strict):
    """A base image: what the config requests, what identifies the image everywhere, and its place in the account."""

    request: Answers
    identity: Answers
    place: Answers

    @pydantic.model_validator(mode="after")
    def _answers_the_request(self) -> Self:
        # A request may be a pattern, such as the name of a cloud's newest image.
        for answer in (self.identity, self.place):
            for key in self.request.keys() & answer.keys():
                # In fnmatch brackets are a set of characters; in a cloud's name they are ordinary characters.
                if not fnmatch.fnmatchcase(answer[key], self.request[key].replace("[", "[[]")):
                    raise ValueError(f"{key} is {answer[key]}, but the request says {self.request[key]}")
        return self

    def mismatches(self, form: BaseForm) -> Iterator[tuple[str, str]]:
        """Each place where this entry does not have the cloud's form, and what is wrong there."""
        for part, answers, keys in (("identity", self.identity, form.identity), ("place", self.place, form.place)):
            if answers.keys() != keys.keys():
                yield part, f"its keys must be {' and '.join(sorted(keys))}, not {', '.join(sorted(answers)) or 'none'}"
            for key in sorted(answers.keys() & keys.keys()):
                if re.fullmatch(keys[key], answers[key]) is None:
                    yield f"{part}.{key}", f"{answers[key][:80]!a} is not a valid value"


class Lock(Strict):
    """Everything that was looked up for one config; `labels` mark a lock that is not for production."""

    lock_version: Annotated[Literal[1], pydantic.BeforeValidator(_not_a_boolean)] = 1
    labels: Annotated[dict[LabelName, LabelValue], pydantic.Field(max_length=100)] = {}
    artifacts: Annotated[dict[Name, LockedArtifact], pydantic.Field(max_length=1000)] = {}
    base_images: Annotated[dict[Name, LockedBase], pydantic.Field(max_length=100)] = {}
    images: Annotated[dict[WholeImageName, LockedImage], pydantic.Field(max_length=1000)] = {}
    """The container images, by their whole names."""
    ca_hosts: Annotated[dict[HostText, bool], pydantic.Field(max_length=1000)] = {}
    """The hosts of the artifacts, and whether they need artifacts.ca. Empty if the config has no such key."""

    def needs_ca(self, urls: Iterable[str]) -> bool:
        """Whether one of these is on a host whose certificate only artifacts.ca vouches for."""
        return any(self.ca_hosts.get(host_of(url), False) for url in urls)


@dataclasses.dataclass(frozen=True)
class StoredLock:
    """A lock as it was read from a file, or written to it."""

    file: Path
    lock: Lock
    sha256: str
    """Of its bytes. Not of its content: another version of imagegen may write it otherwise."""


def read_lock(path: Path, forms: Mapping[str, BaseForm] | None = None) -> Lock | None:
    """The lock at this path; None if there is no file. `forms` are those of the targets whose base images are used."""
    stored = read_stored_lock(path, forms)
    return stored.lock if stored else None


def read_stored_lock(path: Path, forms: Mapping[str, BaseForm] | None = None) -> StoredLock | None:
    """The same, with the digest of the bytes that were read."""
    try:
        text = read_file(path, limit=_LIMIT_LOCK_BYTES)
    except FileNotFoundError:
        return None
    details: list[str] = []
    try:
        lock = Lock.model_validate(json.loads(text, object_pairs_hook=_reject_duplicate_keys))
        problems = [
            Problem(str(path), 0, f"base_images.{target}.{place}", message)
            for target, form in (forms or {}).items()
            if target in lock.base_images
            for place, message in lock.base_images[target].mismatches(form)
        ]
        if not problems:
            return StoredLock(path, lock, hashlib.sha256(text).hexdigest())
    except pydantic.ValidationError as error:
        problems = [_problem(path, item) for item in error.errors(include_url=False)[:_SHOWN_PROBLEMS]]
        if error.error_count() > _SHOWN_PROBLEMS:
            details = [f"and {error.error_count() - _SHOWN_PROBLEMS} more"]
    except (ValueError, RecursionError) as error:
        problems = [Problem(str(path), 0, "", f"is not valid JSON: {error}")]
    raise ConfigError(
        f"{path} is not a valid lock",
        problems=problems,
        details=details,
        hint="restore it from your repository; `imagegen lock CONFIG` makes a new one if you delete it",
    )


def _reject_duplicate_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject duplicate keys: JSON readers differ in which of the two they take."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"duplicate key {key[:80]!a}")
        found[key] = value
    return found


def _problem(path: Path, item: ErrorDetails) -> Problem:
    place = ".".join(str(part) for part in item["loc"] if part != "[key]")
    message = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if item["type"] == "string_pattern_mismatch":
        message = f"{item['input'][:80]!a} is not a valid value or name"
    return Problem(str(path), 0, place, message)


def lock_bytes(lock: Lock) -> bytes:
    """The lock as JSON. Keys are sorted, so that equal locks are byte-identical."""
    return json.dumps(lock.model_dump(mode="json"), indent=2, sort_keys=True).encode() + b"\n"


def lock_sha256(path: Path) -> str:
    """The sha256 of the lock's bytes. Not of its content: another version of imagegen may write it otherwise."""
    return hashlib.sha256(read_file(path, limit=_LIMIT_LOCK_BYTES)).hexdigest()
