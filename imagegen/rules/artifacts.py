"""The rules for downloads and for duplicates in lists. Pure, except that some rules read the steps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pydantic

from imagegen.base.hosts import HostPolicy
from imagegen.config.artifact_policy import PinnedUrl, is_url
from imagegen.config.yaml import YamlPath
from imagegen.fetch.base_url import NAME, VERSION, find_faults, find_form, is_archive
from imagegen.rules.rule import ERROR, Finding, RuleInput, rule, simple_rule
from imagegen.steps.image_name import ImageName

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec
    from imagegen.steps.model import ArtifactMeta

_NAMES: Final = r"[a-z_]+(?:\.[a-z_]+)*"
_CONDITION: Final = re.compile(rf"(?P<key>{_NAMES})(?: (?P<sign>==|!=) (?:'(?P<text>[^']+)'|(?P<other>{_NAMES})))?")


# What a base URL is that has several files.
_SEVERAL: Final = {
    "folder": "a folder with several files (an archive must end with .zip, .tar.gz, .tgz or .tar)",
    "template": "a template for several files",
}


def _artifacts(given: RuleInput) -> list[ArtifactMeta]:
    return [item for step in given.steps().values() for item in step.meta.artifacts.values()]


def _overrides(given: RuleInput) -> dict[str, str]:
    """The URL of each override."""
    return {name: item.url if isinstance(item, PinnedUrl) else item for name, item in given.config.overrides.items()}


def _base_overrides(given: RuleInput) -> dict[str, str]:
    """The overrides whose URL stands for several files, each with what it is."""
    bases = {item.override for item in _artifacts(given) if item.base}
    forms = {name: find_form(url) for name, url in _overrides(given).items() if name in bases}
    return {name: _SEVERAL[form] for name, form in forms.items() if form in _SEVERAL}


@rule("sha256-of-one-file", ERROR, "A sha256 must be of one file, not of a folder or a template")
def sha256_of_one_file(given: RuleInput) -> list[Finding]:
    pinned = [name for name, item in given.config.overrides.items() if isinstance(item, PinnedUrl) and item.sha256]
    return [
        Finding(
            ("overrides", name, "sha256"),
            f"the URL is {what}, so one sha256 cannot match",
            "leave sha256 out: the lock pins each file",
        )
        for name, what in (sorted(_base_overrides(given).items()) if pinned else ())
        if name in pinned
    ]


@rule(
    "base-url-template",
    ERROR,
    "A template must be a base URL, with {name} and no unknown placeholder",
    why="a template stands for one file per program: kubelet, kubeadm and the others have different URLs",
)
def base_url_template(given: RuleInput) -> Iterator[Finding]:
    for name, url in _overrides(given).items():
        if find_form(url) != "template":
            continue
        path = ("overrides", name) if isinstance(given.config.overrides[name], str) else ("overrides", name, "url")
        files = [item for item in _artifacts(given) if item.override == name and item.base]
        if not files:
            bases = sorted({str(item.override) for item in _artifacts(given) if item.base})
            yield Finding(
                path,
                f"{name} is one file, so its URL cannot have placeholders",
                f"write the whole URL, with %7B and %7D for braces; placeholders are for {' and '.join(bases)}",
            )
            continue
        known = (NAME, VERSION) if all(item.version for item in files) else (NAME,)
        yield from (Finding(path, message, hint) for message, hint in find_faults(url, known))
        used = [str(item.path) for item in files if _is_used(item.when, given)]
        if whole := next((file for file in used if is_archive(file)), None):
            yield Finding(
                path,
                f"the config takes all programs from {whole}, and a template is for one file per program",
                "write the URL of that archive, or set kubernetes.source to binaries",
            )


@rule(
    "file-override-idle",
    ERROR,
    "The override of one program requires kubernetes.source: binaries",
    why="otherwise the program comes from the archive of kubernetes_base_url, and the override has no effect",
)
def file_override_idle(given: RuleInput) -> Iterator[Finding]:
    source = given.config.kubernetes.source
    for name in sorted(given.config.overrides) if source != "binaries" else ():
        files = [item for item in _artifacts(given) if item.file_override == name]
        if files and not any(_is_used(item.when, given) for item in files):
            yield Finding(
                ("overrides", name),
                f"kubernetes.source is {source}, so {files[0].path} comes from that archive",
                "set kubernetes.source to binaries; kubernetes_base_url may then still be the URL of an archive",
            )


@rule(
    "sha256-required",
    ERROR,
    "With artifacts.require_sha256 each artifact of your own must have its sha256",
    why="without a digest in the config, the first download decides what the lock pins",
)
def sha256_required(given: RuleInput) -> list[Finding]:
    """Folders are exempt, because the lock pins each of their files."""
    if not given.config.artifacts.require_sha256:
        return []
    without = [path[:2] for path, _, sha256 in _own_artifacts(given) if not sha256]
    folders = _base_overrides(given) if any(path[0] == "overrides" for path in without) else ()
    return [
        Finding(
            path,
            "artifacts.require_sha256 is true, but this artifact has no sha256",
            "write {url: …, sha256: …}",
        )
        for path in without
        if path[0] != "overrides" or path[1] not in folders
    ]


def _own_artifacts(given: RuleInput) -> Iterator[tuple[YamlPath, str, str | None]]:
    """The path of the URL, the URL and the sha256 of each artifact in the config. The artifact has path[:2]."""
    for name, item in given.config.overrides.items():
        if isinstance(item, PinnedUrl):
            yield ("overrides", name, "url"), item.url, item.sha256
        else:
            yield ("overrides", name), item, None
    for index, provider in enumerate(given.config.credential_providers):
        yield ("credential_providers", index, "url"), provider.url, provider.sha256
    for index, tarball in enumerate(given.config.image_tarballs):
        yield ("image_tarballs", index, "url"), tarball.url, tarball.sha256
    for index, executable in enumerate(given.config.executables):
        yield ("executables", index, "url"), executable.url, executable.sha256


@rule("sha256-of-its-url", ERROR, "A sha256 must be written in the same file as its URL")
def sha256_of_its_url(given: RuleInput) -> Iterator[Finding]:
    """A config that extends another and overrides only one of both combines a URL with the digest of another file."""
    for path, _, sha256 in _own_artifacts(given):
        path_of_digest = (*path[:2], "sha256")
        url, digest = _source_of(given, path), _source_of(given, path_of_digest)
        if sha256 and url != digest:
            yield Finding(
                path_of_digest,
                f"the URL comes from {url}, but the sha256 from {digest}, so they belong to different files",
                "write both in one place",
            )


def _source_of(given: RuleInput, path: YamlPath) -> str:
    """The file of a value, or `--set`."""
    place = given.document.place(path)
    return place.file if place.line else "--set"


def _is_used(when: str | None, given: RuleInput) -> bool:
    """Whether a target uses a step or artifact with this `when`. Only keys, facts and their comparisons are judged."""
    choices = [choice.split(" and ") for choice in (when or "").split(" or ")]
    return any(all(_holds(part, spec) for part in choice) for spec in given.specs.values() for choice in choices)


def _holds(part: str, spec: Spec) -> bool:
    asked = _CONDITION.fullmatch(part)
    if asked is None:
        return True
    try:
        value, other = _value(asked["key"], spec), asked["text"] or (asked["other"] and _value(asked["other"], spec))
    except AttributeError:
        # A value that only steps see.
        return True
    return bool(value) if asked["sign"] is None else (value == other) == (asked["sign"] == "==")


def _value(key: str, spec: Spec) -> object:
    """The value of a key or a fact; None in a section that the config omits."""
    first, *names = key.split(".")
    value: object = spec.facts if first == "facts" else getattr(spec.config, first)
    for name in names:
        value = None if value is None else getattr(value, name)
    return value


def mirrored_images(given: RuleInput) -> list[str]:
    """The container images that come from artifacts.mirror, by their names in the config."""
    policy = given.config.artifacts
    names = {name for spec in given.specs.values() for name in spec.pulled_images} if policy.mirror else set()
    return sorted(name for name in names if ImageName.parse(name).registry not in policy.pull_from)


@rule("pull-from-used", ERROR, "A registry in artifacts.pull_from must have an image that artifacts.mirror would bring")
def pull_from_used(given: RuleInput) -> Iterator[Finding]:
    policy = given.config.artifacts
    registries = {ImageName.parse(name).registry for spec in given.specs.values() for name in spec.pulled_images}
    for index, registry in enumerate(policy.pull_from):
        if policy.mirror is None:
            message, hint = "without artifacts.mirror, all images are pulled", "leave it out, or set artifacts.mirror"
        elif registry not in registries:
            message, hint = f"the build needs no image of {registry}", "leave it out, or write an image into images"
        else:
            continue
        yield Finding(("artifacts", "pull_from", index), message, hint)


def _has_override_at_mirror(given: RuleInput) -> bool:
    """Whether the mirror serves an override: it was copied there for a closed network."""
    folder = f"{(given.config.artifacts.mirror or '').rstrip('/')}/"
    urls = (one if isinstance(one, str) else one.url for one in given.config.overrides.values())
    return any(url.startswith(folder) for url in urls)


# An override replaces the mirror for its artifact, and so does a URL of the config.
mirror_idle = simple_rule(
    "mirror-idle",
    ERROR,
    "artifacts.mirror must serve at least one artifact or container image",
    lambda given: (
        given.config.artifacts.mirror
        and not mirrored_images(given)
        and not _has_override_at_mirror(given)
        and all(
            item.override is None or any(name in given.config.overrides for name in item.overrides)
            for step in given.steps().values()
            if _is_used(step.meta.when, given)
            for item in step.meta.artifacts.values()
            if _is_used(item.when, given)
        )
    ),
    Finding(
        ("artifacts", "mirror"),
        "every artifact has an override elsewhere, so nothing is downloaded from the mirror",
        "write the overrides that `imagegen artifacts mirror` prints, or leave the mirror or an override out",
    ),
)


# .NET Framework, in a program that names no version of it, decodes these in the path: ansible/ansible#45188.
_DECODED: Final = re.compile("%(?:2F|2E|5C)", re.IGNORECASE)


@rule(
    "url-path-decoded",
    ERROR,
    "The path of a URL must not have %2F, %2E or %5C",
    why="Windows PowerShell decodes them before it sends the request, so the builder would download another URL",
)
def url_path_decoded(given: RuleInput) -> Iterator[Finding]:
    urls = [(path, "the path", url) for path, url, _ in _own_artifacts(given)]
    if mirror := given.config.artifacts.mirror:
        urls.append((("artifacts", "mirror"), "the path", mirror))
    for name, step in (given.steps() if given.config.steps_path else {}).items():
        urls += [
            (("steps_path",), f"the URL of an artifact of the step {name}", item.url or f"{item.base}/{item.path}")
            for item in step.meta.artifacts.values()
            if not any(override in given.config.overrides for override in item.overrides)
        ]
    for path, place, url in urls:
        if found := _DECODED.search(url):
            yield Finding(
                path,
                f'{place} has {found[0]}, for which Windows PowerShell sends "{unquote(found[0])}"',
                "write a URL without it: on GitLab the number of the project in place of its path, or that of a mirror",
            )


@rule("host-allowed", ERROR, "URLs must be on one of artifacts.allowed_hosts")
def host_allowed(given: RuleInput) -> list[Finding]:
    policy = HostPolicy.of(given.config.artifacts.allowed_hosts, ())
    return [
        Finding(
            path,
            f"{host} is not in artifacts.allowed_hosts",
            "add the host there, or use a URL on an allowed host",
        )
        for path, host in _own_hosts(given)
        if not policy.is_allowed(host)
    ]


@rule("host-denied", ERROR, "URLs must not be on one of artifacts.denied_hosts")
def host_denied(given: RuleInput) -> list[Finding]:
    policy = HostPolicy.of((), given.config.artifacts.denied_hosts)
    return [
        Finding(path, f"{host} is in artifacts.denied_hosts", "remove the host there, or use a URL on another host")
        for path, host in _own_hosts(given)
        if policy.is_denied(host)
    ]


def _own_hosts(given: RuleInput) -> Iterator[tuple[YamlPath, str]]:
    """The path of each URL in the config from which something is downloaded, and its host with its port."""
    for path, url, _ in _own_artifacts(given):
        yield path, url.split("/")[2]
    if given.config.artifacts.mirror:
        yield ("artifacts", "mirror"), given.config.artifacts.mirror.split("/")[2]
    policy = given.config.artifacts.signatures
    for at, crl in enumerate(policy.crls if policy else ()):
        if is_url(crl):
            yield ("artifacts", "signatures", "crls", at), crl.split("/")[2]


@rule(
    "listed-twice",
    ERROR,
    "A list must not contain the same item twice",
    why="the second item has no effect, and is often a typing error for another value",
)
def listed_twice(given: RuleInput) -> list[Finding]:
    return [
        Finding((*path, index), f"duplicate item {item!r}", "leave one out")
        for path, items in _lists(given.config, ())
        for index, item in enumerate(items)
        if item in items[:index]
    ]


def _lists(value: object, at: YamlPath) -> Iterator[tuple[YamlPath, list[str]]]:
    if isinstance(value, (pydantic.BaseModel, dict)):
        for name, inner in value.items() if isinstance(value, dict) else value:
            yield from _lists(inner, (*at, name))
    # A command line may have the same word twice.
    elif isinstance(value, list) and at[-1] != "arguments":
        yield at, [item for item in value if isinstance(item, str)]
        for index, inner in enumerate(value):
            yield from _lists(inner, (*at, index))
