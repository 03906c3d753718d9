"""The lock: artifacts and base images as they were looked up. `imagegen lock` writes it beside the user's config.

Every digest in a lock was computed from downloaded bytes. A lock comes from a repository, so it is not trusted:
its model is closed and bounded, and its entries must match what the config requests. What it does not have yet is
downloaded to a scratch folder in the cache, which is removed.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import fnmatch
import hashlib
import json
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import pydantic

from imagegen.artifacts.archive import LIMIT_MEMBERS, check_form, is_member, read_members
from imagegen.artifacts.download import LIMIT_BYTES, fetch
from imagegen.artifacts.image_lookup import Ask, ImageRequest, LockedImage, look_up_image
from imagegen.artifacts.image_tarball import TarballImages, WholeImageName, read_image_tarball
from imagegen.artifacts.request import ArtifactRequest, shown_url
from imagegen.errors import ConfigError, ImagegenError, Problem, VerificationError
from imagegen.files import read_file, scratch_folder
from imagegen.lines import counted
from imagegen.resources.model import Name, Sha256, Strict
from imagegen.signals import as_finished

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from imagegen.console import Console

# The member lists of the largest archives take a few megabytes.
_LIMIT_LOCK_BYTES: Final = 64 * 2**20
_SHOWN_PROBLEMS: Final = 10
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


Plain = Annotated[str, _check(_PLAIN.fullmatch, "is not a valid name")]
Address = Annotated[str, _check(re.compile(r"https://[!-~]{1,2040}").fullmatch, "must start with https://")]
Member = Annotated[
    str,
    _check(lambda path: len(path) <= 1024 and is_member(path), "is not a valid path of an archive member on Windows"),
]
Members = Annotated[
    dict[Member, Sha256], pydantic.Field(max_length=LIMIT_MEMBERS), pydantic.AfterValidator(_distinct_on_windows)
]
Answers = Annotated[dict[Name, Plain], pydantic.Field(max_length=32)]
LabelName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
LabelValue = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,200}$")]


class LockedArtifact(Strict):
    """One download: its URL, and what its bytes were. `members` lists the files of an archive, `images` the container
    images of a tarball."""

    url: Address
    sha256: Sha256
    size: Annotated[int, pydantic.Field(ge=0, le=LIMIT_BYTES)]
    members: Members | None = None
    images: TarballImages | None = None

    def answers(self, request: ArtifactRequest) -> bool:
        """Whether this entry matches the request: URL, digest, and what the lock lists of a file of this form."""
        return (
            self.url == request.url
            and request.sha256 in (None, self.sha256)
            and (self.members is not None) == (request.form == "archive")
            and (self.images is not None) == (request.form == "image")
        )


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


def read_lock(path: Path, forms: Mapping[str, BaseForm] | None = None) -> Lock | None:
    """The lock at this path; None if there is no file. `forms` are those of the targets whose base images are used."""
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
            return lock
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
        hint="restore it from your repository, or delete it and run `imagegen lock`",
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


def find_unlocked_images(requests: Mapping[str, ImageRequest], old: Lock | None, *, refresh: bool) -> set[str]:
    """The container images that must be looked up: those that the old lock does not have. With `refresh`, all."""
    known = old.images if old else {}
    return {
        name for name, request in requests.items() if refresh or name not in known or not known[name].answers(request)
    }


def lock_images(
    requests: Mapping[str, ImageRequest],
    old: Lock | None,
    ask: Ask,
    *,
    refresh: bool,
    console: Console,
    credentials: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, LockedImage]:
    """The container images for a lock. With `refresh`, each of them is looked up again.

    `credentials` are those of registries, by their names."""
    unlocked = find_unlocked_images(requests, old, refresh=refresh)
    kept = requests.keys() - unlocked
    found = {name: image for name, image in (old.images if old else {}).items() if name in kept}
    for name in sorted(unlocked):
        with console.task(f"looking up {name}", None):
            found[name] = look_up_image(requests[name], ask, credentials.get(requests[name].name.registry, ""))
    return dict(sorted(found.items()))


PARALLEL = 4

_Found = dict[str, LockedArtifact]


def lock_artifacts(
    requests: Mapping[str, ArtifactRequest],
    old: Lock | None,
    *,
    refresh: bool,
    environ: Mapping[str, str],
    cache: Path,
    console: Console,
) -> dict[str, LockedArtifact]:
    """The artifacts for a lock. With `refresh`, each of them is downloaded again."""
    known = old.artifacts if old else {}
    kept = {
        name: known[name]
        for name, request in requests.items()
        if name in known and not refresh and known[name].answers(request)
    }
    # By URL and digest: one download may serve several artifacts.
    together: dict[tuple[str, str | None], list[ArtifactRequest]] = {}
    for name, request in requests.items():
        if name not in kept:
            together.setdefault((request.url, request.sha256), []).append(request)
    found = _download_all([*together.values()], environ=environ, cache=cache, console=console)
    for name, now in found.items():
        _reject_changed_bytes(requests[name], known.get(name), now)
    return {name: kept[name] if name in kept else found[name] for name in sorted(requests)}


def _reject_changed_bytes(request: ArtifactRequest, before: LockedArtifact | None, now: LockedArtifact) -> None:
    if before and before.url == now.url and now.sha256 not in (before.sha256, request.sha256):
        raise VerificationError(
            f"{request.name}: the bytes of {shown_url(now.url)} have changed since it was locked: "
            f"sha256 {now.sha256}, but the lock says {before.sha256}",
            hint="a published file does not change: find out why; to accept the new bytes, write this sha256 "
            f"beside {request.key}",
        )


def _download(
    requests: list[ArtifactRequest], scratch: Path, environ: Mapping[str, str], console: Console, stop: threading.Event
) -> _Found:
    """Download the URL of these requests, which they share."""
    first = requests[0]
    # In a folder of its own, because an artifact's name may not be a valid file name.
    into = Path(tempfile.mkdtemp(dir=scratch)) / "artifact"
    fetched = fetch(
        first.url,
        into,
        environ=environ,
        console=console,
        expected_sha256=first.sha256,
        key=first.key,
        stop=stop,
    )
    formats = {request.name: check_form(request, into) for request in requests}
    archive = next((form for form in formats.values() if form), None)
    asked = {request.form for request in requests if formats[request.name]}
    members = read_members(into, archive, first.name) if archive and "archive" in asked else None
    images = read_image_tarball(into, archive, first.name) if archive and "image" in asked else None
    into.unlink()
    return {
        request.name: LockedArtifact(
            url=request.url,
            sha256=fetched.sha256,
            size=fetched.size,
            members=members if request.form == "archive" else None,
            images=images if request.form == "image" else None,
        )
        for request in requests
    }


def _download_all(
    downloads: list[list[ArtifactRequest]], *, environ: Mapping[str, str], cache: Path, console: Console
) -> _Found:
    if not downloads:
        return {}
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    stop = threading.Event()
    with (
        scratch_folder(cache, "lock-") as scratch,
        concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool,
        console.task(f"looking up {counted(len(downloads), 'artifact')}", len(downloads)) as advance,
    ):
        try:
            running = [pool.submit(_download, requests, scratch, environ, console, stop) for requests in downloads]
            for _ in as_finished(running):
                advance(1)
        except BaseException:
            # Without this, an interrupt would wait for every download.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return _gather(running)


def _gather(finished: list[concurrent.futures.Future[_Found]]) -> _Found:
    """All artifacts, or all errors, so that one run shows the operator every URL to correct."""
    errors = [error for error in (future.exception() for future in finished) if isinstance(error, ImagegenError)]
    if not errors:
        return {name: artifact for future in finished for name, artifact in future.result().items()}
    # Wrong bytes are the most serious error: an unreachable server must not hide their exit code.
    first = min(errors, key=lambda error: not isinstance(error, VerificationError))
    if len(errors) == 1:
        raise first
    details = [line for error in errors for line in (error.message, *error.details, f"  hint: {error.hint}")]
    raise type(first)(f"{len(errors)} of {len(finished)} downloads failed", details=details) from first
