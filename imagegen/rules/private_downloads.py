"""The rules for the credentials of hosts with private artifacts. Pure, except that one rule reads the steps."""

import re
from collections.abc import Iterator
from typing import Final

from imagegen.base.hosts import plain_host
from imagegen.config.artifact_policy import ArtifactCredentials, PinnedUrl
from imagegen.config.yaml import YamlPath
from imagegen.providers.storage import storages
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

_KEY: Final = ("artifacts", "credentials")
_HOST: Final = re.compile(r"https://([^/{}]+)/")


def _each(given: RuleInput) -> Iterator[tuple[YamlPath, ArtifactCredentials]]:
    for index, one in enumerate(given.config.artifacts.credentials):
        yield (*_KEY, index), one


@rule("download-credentials-storage", ERROR, "sign_in must name the cloud whose storage the host is")
def download_credentials_storage(given: RuleInput) -> Iterator[Finding]:
    asked = [(path, one, one.sign_in) for path, one in _each(given) if one.sign_in]
    known = storages() if asked else {}
    for path, one, cloud in asked:
        if cloud not in known:
            hint = f"write one of {', '.join(sorted(known))}"
            yield Finding((*path, "sign_in"), f"{cloud} has no storage from which imagegen downloads", hint)
        elif not known[cloud].is_host(plain_host(one.host)):
            fitting = [name for name, storage in known.items() if storage.is_host(plain_host(one.host))]
            hint = f"write {fitting[0]}" if fitting else "write token_env, username_env and password_env, or query_env"
            yield Finding((*path, "sign_in"), f"{one.host} is not a host of the storage of {cloud}", hint)


@rule(
    "download-credentials-unused",
    WARNING,
    "An artifact should come from each host in artifacts.credentials",
    why="a host that is spelled wrongly gets no credentials, and its downloads fail",
)
def download_credentials_unused(given: RuleInput) -> Iterator[Finding]:
    asked = list(_each(given))
    used = _hosts(given) if asked else set()
    for path, one in asked:
        if plain_host(one.host) not in used:
            yield Finding(
                (*path, "host"),
                f"no artifact comes from {one.host}, so nothing uses these credentials",
                "correct the host, or leave them out",
            )


def _hosts(given: RuleInput) -> set[str]:
    """The hosts from which artifacts may come. The mirror replaces those of the steps."""
    config = given.config
    urls = [item.url if isinstance(item, PinnedUrl) else item for item in config.overrides.values()]
    urls += [one.url for one in config.credential_providers]
    urls += [one.url for one in config.image_tarballs]
    urls += [one.url for one in config.executables]
    if config.artifacts.mirror:
        urls.append(config.artifacts.mirror)
    else:
        urls += [item.url or "" for step in given.steps().values() for item in step.meta.artifacts.values()]
    return {plain_host(found[1]) for url in urls if (found := _HOST.match(f"{url}/"))}
