"""The rules for the credentials of hosts with private artifacts. Pure, except that one rule reads the steps."""

import re
from collections.abc import Iterator
from typing import Final

from imagegen.base.hosts import plain_host
from imagegen.catalog.facts import table
from imagegen.config.artifact_policy import ArtifactCredentials, PinnedUrl
from imagegen.config.yaml import YamlPath
from imagegen.providers.storage import storages
from imagegen.rules.rule import ERROR, WARNING, Finding, RuleInput, rule

_KEY: Final = ("artifacts", "credentials")
_NAMES: Final = ("token_env", "username_env", "password_env", "query_env")
_WAYS: Final = "token_env, username_env with password_env, query_env or sign_in"
_HOST: Final = re.compile(r"https://([^/{}]+)/")


def _each(given: RuleInput) -> Iterator[tuple[YamlPath, ArtifactCredentials]]:
    for index, one in enumerate(given.config.artifacts.credentials):
        yield (*_KEY, index), one


@rule("download-credentials-way", ERROR, f"Each host in artifacts.credentials must have one of {_WAYS}")
def download_credentials_way(given: RuleInput) -> Iterator[Finding]:
    for path, one in _each(given):
        pair = one.username_env, one.password_env
        ways = [name for name in ("token_env", "query_env", "sign_in") if getattr(one, name)]
        ways += ["username_env with password_env"] if any(pair) else []
        if len(ways) != 1:
            what = f"{len(ways)} ways to sign in: {', '.join(ways)}" if ways else "no way to sign in"
            yield Finding(path, f"{one.host} has {what}", f"write one of {_WAYS}")
        elif any(pair) and not all(pair):
            missing = "password_env" if one.username_env else "username_env"
            yield Finding(path, f"{one.host} has no {missing}", f"add {missing}: basic authentication needs both")


@rule("download-credentials-once", ERROR, "A host, or a path on it, must be listed once in artifacts.credentials")
def download_credentials_once(given: RuleInput) -> Iterator[Finding]:
    seen = set()
    for path, one in _each(given):
        place = plain_host(one.host), one.path
        if place in seen:
            hint = "leave one of them out, or give each the path of its files"
            yield Finding((*path, "host"), f"{one.host}{one.path or ''} is listed above", hint)
        seen.add(place)


@rule("download-credentials-variable", ERROR, "Credentials of downloads must be in variables of their own")
def download_credentials_variable(given: RuleInput) -> Iterator[Finding]:
    rows = table("variables")["names"]
    for path, one in _each(given):
        named = {key: name for key in _NAMES if (name := getattr(one, key))}
        for key, name in named.items():
            if row := next((row for row in rows if re.fullmatch("|".join(row["patterns"]), name)), None):
                yield Finding(
                    (*path, key),
                    f"{name} does not hold the credentials of {one.host}: {row['means']}",
                    "write the name of a variable that holds only this value, for example ARTIFACTS_TOKEN",
                )
        if one.username_env and one.username_env == one.password_env:
            yield Finding(
                (*path, "password_env"),
                f"{one.password_env} cannot hold both the user name and the password",
                "write the names of two variables",
            )


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
