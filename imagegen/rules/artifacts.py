"""Where bytes come from and what they must be, and what is listed twice. Pure but for reading the steps when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from imagegen.config.sources import PinnedUrl, plain_host
from imagegen.judging import ERROR, Finding, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.documents.yaml import YamlPath
    from imagegen.judging import RuleInput


def _base_overrides(given: RuleInput) -> set[str]:
    """The overrides that are a folder of several files."""
    return {item.override for step in given.steps().values() for item in step.meta.artifacts.values() if item.base}


@rule("sha256-of-one-file", ERROR, "A sha256 must be of one file, not of a folder")
def sha256_of_one_file(given: RuleInput) -> Iterator[Finding]:
    pinned = [name for name, item in given.config.overrides.items() if isinstance(item, PinnedUrl) and item.sha256]
    if not pinned:
        return
    for name in sorted(_base_overrides(given).intersection(pinned)):
        yield Finding(
            ("overrides", name, "sha256"),
            "a base URL holds several files, so one sha256 cannot be right for them",
            "leave sha256 out; the lock pins each file",
        )


@rule(
    "sha256-required",
    ERROR,
    "With artifacts.require_sha256 each artifact of your own must have its sha256",
    why="without a digest in the config, the first download decides what the lock pins",
)
def sha256_required(given: RuleInput) -> Iterator[Finding]:
    """Of a base URL the lock pins each file."""
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
            "artifacts.require_sha256 asks what its bytes must be, and nothing here says it",
            "add its sha256, and the address under url",
        )


@rule("sha256-of-its-url", ERROR, "A sha256 must be written in the same file as its URL")
def sha256_of_its_url(given: RuleInput) -> Iterator[Finding]:
    """A config that extends another and says one of both anew has the other's digest, or the other's URL."""
    config = given.config
    asked_for: list[tuple[YamlPath, object]] = [
        *((("overrides", name), item) for name, item in config.overrides.items()),
        *((("credential_providers", index), item) for index, item in enumerate(config.credential_providers)),
        *((("executables", index), item) for index, item in enumerate(config.executables)),
    ]
    for path, item in asked_for:
        url, digest = _said_in(given, (*path, "url")), _said_in(given, (*path, "sha256"))
        if getattr(item, "sha256", None) and url != digest:
            yield Finding(
                (*path, "sha256"),
                f"the URL is said in {url} and the digest in {digest}, so it is the digest of another URL",
                "say both in one place",
            )


def _said_in(given: RuleInput, path: YamlPath) -> str:
    """The file; all that `--set` says is said in one place."""
    place = given.document.place(path)
    return place.file if place.line else "--set"


@rule("mirror-idle", ERROR, "artifacts.mirror must serve at least one artifact")
def mirror_idle(given: RuleInput) -> Iterator[Finding]:
    """What is overridden has an address of its own."""
    config = given.config
    if config.artifacts.mirror is None:
        return
    named = {item.override for step in given.steps().values() for item in step.meta.artifacts.values()}
    if named <= set(config.overrides):
        yield Finding(
            ("artifacts", "mirror"),
            "every artifact is overridden, so nothing is asked for at the mirror",
            "leave it out, or leave out an override",
        )


@rule("host-allowed", ERROR, "URLs must be on one of artifacts.allowed_hosts")
def host_allowed(given: RuleInput) -> Iterator[Finding]:
    allowed = {plain_host(host) for host in given.config.artifacts.allowed_hosts}
    if not allowed:
        return
    for path, url in _addresses(given):
        host = url.split("/")[2]
        if plain_host(host) not in allowed:
            yield Finding(
                path,
                f"{host} is not among artifacts.allowed_hosts, so nothing is downloaded from it",
                "add the host there, or take the file from one that is",
            )


def _addresses(given: RuleInput) -> Iterator[tuple[YamlPath, str]]:
    config = given.config
    if config.artifacts.mirror:
        yield ("artifacts", "mirror"), config.artifacts.mirror
    for name, item in config.overrides.items():
        if isinstance(item, PinnedUrl):
            yield ("overrides", name, "url"), item.url
        else:
            yield ("overrides", name), item
    for index, provider in enumerate(config.credential_providers):
        yield ("credential_providers", index, "url"), provider.url
    for index, executable in enumerate(config.executables):
        yield ("executables", index, "url"), executable.url


@rule(
    "listed-twice",
    ERROR,
    "A list must not contain the same item twice",
    why="the second one does nothing, and is often a typing error for another value",
)
def listed_twice(given: RuleInput) -> Iterator[Finding]:
    for path, items in _lists(given.config, ()):
        seen: set[str] = set()
        for index, item in enumerate(items):
            if item in seen:
                yield Finding((*path, index), f"{item} is here twice", "leave one out")
            seen.add(item)


def _lists(value: object, at: YamlPath) -> Iterator[tuple[YamlPath, list[str]]]:
    if isinstance(value, pydantic.BaseModel):
        for name, inner in value:
            yield from _lists(inner, (*at, name))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _lists(inner, (*at, name))
    elif isinstance(value, list):
        yield at, [item for item in value if isinstance(item, str)]
        for index, inner in enumerate(value):
            yield from _lists(inner, (*at, index))
