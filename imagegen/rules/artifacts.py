"""The rules for downloads and for duplicates in lists. Pure, except that some rules read the steps."""

from collections.abc import Iterator

import pydantic

from imagegen.config.model import PinnedUrl
from imagegen.config.value_types import plain_host
from imagegen.documents.yaml import YamlPath
from imagegen.judging import ERROR, Finding, RuleInput, rule


def _base_overrides(given: RuleInput) -> set[str]:
    """The overrides that name a folder with several files."""
    return {item.override for step in given.steps().values() for item in step.meta.artifacts.values() if item.base}


@rule("sha256-of-one-file", ERROR, "A sha256 must be of one file, not of a folder")
def sha256_of_one_file(given: RuleInput) -> Iterator[Finding]:
    pinned = [name for name, item in given.config.overrides.items() if isinstance(item, PinnedUrl) and item.sha256]
    for name in sorted(_base_overrides(given).intersection(pinned)) if pinned else ():
        yield Finding(
            ("overrides", name, "sha256"),
            "the URL is a folder with several files, so one sha256 cannot match",
            "leave sha256 out: the lock pins each file",
        )


@rule(
    "sha256-required",
    ERROR,
    "With artifacts.require_sha256 each artifact of your own must have its sha256",
    why="without a digest in the config, the first download decides what the lock pins",
)
def sha256_required(given: RuleInput) -> Iterator[Finding]:
    """Folders are exempt, because the lock pins each of their files."""
    if not given.config.artifacts.require_sha256:
        return
    without: list[YamlPath] = [
        ("overrides", name)
        for name, item in given.config.overrides.items()
        if not (isinstance(item, PinnedUrl) and item.sha256)
    ]
    if without:
        bases = _base_overrides(given)
        without = [path for path in without if path[1] not in bases]
    providers, executables = given.config.credential_providers, given.config.executables
    without += [("credential_providers", index) for index, item in enumerate(providers) if not item.sha256]
    without += [("executables", index) for index, item in enumerate(executables) if not item.sha256]
    for path in without:
        yield Finding(
            path,
            "artifacts.require_sha256 is true, but this artifact has no sha256",
            "write {url: …, sha256: …}",
        )


@rule("sha256-of-its-url", ERROR, "A sha256 must be written in the same file as its URL")
def sha256_of_its_url(given: RuleInput) -> Iterator[Finding]:
    """A config that extends another and overrides only one of both combines a URL with the digest of another file."""
    config = given.config
    artifacts: list[tuple[YamlPath, object]] = [
        *((("overrides", name), item) for name, item in config.overrides.items()),
        *((("credential_providers", index), item) for index, item in enumerate(config.credential_providers)),
        *((("executables", index), item) for index, item in enumerate(config.executables)),
    ]
    for path, item in artifacts:
        url, digest = _source_of(given, (*path, "url")), _source_of(given, (*path, "sha256"))
        if getattr(item, "sha256", None) and url != digest:
            yield Finding(
                (*path, "sha256"),
                f"the URL comes from {url}, but the sha256 from {digest}, so they belong to different files",
                "write both in one place",
            )


def _source_of(given: RuleInput, path: YamlPath) -> str:
    """The file of a value, or `--set`."""
    place = given.document.place(path)
    return place.file if place.line else "--set"


@rule("mirror-idle", ERROR, "artifacts.mirror must serve at least one artifact")
def mirror_idle(given: RuleInput) -> Iterator[Finding]:
    """An override replaces the mirror for its artifact."""
    config = given.config
    if config.artifacts.mirror is None:
        return
    named = {item.override for step in given.steps().values() for item in step.meta.artifacts.values()}
    if named <= set(config.overrides):
        yield Finding(
            ("artifacts", "mirror"),
            "every artifact has an override, so nothing is downloaded from the mirror",
            "leave it out, or leave out an override",
        )


@rule("host-allowed", ERROR, "URLs must be on one of artifacts.allowed_hosts")
def host_allowed(given: RuleInput) -> Iterator[Finding]:
    allowed = {plain_host(host) for host in given.config.artifacts.allowed_hosts}
    for path, url in _addresses(given) if allowed else ():
        host = url.split("/")[2]
        if plain_host(host) not in allowed:
            yield Finding(
                path,
                f"{host} is not in artifacts.allowed_hosts",
                "add the host there, or use a URL on an allowed host",
            )


def _addresses(given: RuleInput) -> Iterator[tuple[YamlPath, str]]:
    config = given.config
    if config.artifacts.mirror:
        yield ("artifacts", "mirror"), config.artifacts.mirror
    for name, item in config.overrides.items():
        yield (("overrides", name, "url"), item.url) if isinstance(item, PinnedUrl) else (("overrides", name), item)
    yield from (
        (("credential_providers", index, "url"), item.url) for index, item in enumerate(config.credential_providers)
    )
    yield from ((("executables", index, "url"), item.url) for index, item in enumerate(config.executables))


@rule(
    "listed-twice",
    ERROR,
    "A list must not contain the same item twice",
    why="the second item has no effect, and is often a typing error for another value",
)
def listed_twice(given: RuleInput) -> Iterator[Finding]:
    for path, items in _lists(given.config, ()):
        for index, item in enumerate(items):
            if item in items[:index]:
                yield Finding((*path, index), f"duplicate item {item!r}", "leave one out")


def _lists(value: object, at: YamlPath) -> Iterator[tuple[YamlPath, list[str]]]:
    if isinstance(value, (pydantic.BaseModel, dict)):
        for name, inner in value.items() if isinstance(value, dict) else value:
            yield from _lists(inner, (*at, name))
    elif isinstance(value, list):
        yield at, [item for item in value if isinstance(item, str)]
        for index, inner in enumerate(value):
            yield from _lists(inner, (*at, index))
