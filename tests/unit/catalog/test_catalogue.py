"""The catalogue's tables: complete for every release, edition, cloud and minor, in forms that their readers take."""

from __future__ import annotations

import datetime
import json
import re
import typing

import pydantic
import pytest

from imagegen import contents
from imagegen.catalog.facts import Versions, facts_for, minor, paths, stock_paths, table, windows_for
from imagegen.config.model import Windows
from imagegen.providers import PROVIDERS
from imagegen.resources.kinds import Registry
from imagegen.resources.model import WindowsPath

TABLES = sorted(path.removesuffix(".json") for path in contents.read_folder(contents.CATALOG, "*.json"))
RELEASES = table("windows")["releases"]
MINORS = table("kubernetes")["minors"]
LINES = table("containerd")["lines"]
EDITIONS = typing.get_args(Windows.model_fields["edition"].annotation)


def versions(**changes: str) -> Versions:
    asked = {
        "windows": "2022",
        "edition": "core",
        "kubernetes": "1.36.2",
        "containerd": "2.3.4",
        "cloudbase_init": "1.1.8",
    }
    return Versions(**{**asked, **changes})


@pytest.mark.parametrize("name", TABLES)
def test_table_says_where_it_is_from_and_when_it_was_read(name: str) -> None:
    data = json.loads((contents.CATALOG / f"{name}.json").read_bytes())
    assert data["source"]
    assert datetime.date.fromisoformat(data["read"]) <= datetime.date(2026, 11, 18)


def test_releases_are_what_a_config_may_ask_for() -> None:
    assert tuple(RELEASES) == typing.get_args(Windows.model_fields["release"].annotation)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("target", PROVIDERS)
def test_every_release_has_an_image_everywhere(release: str, edition: str, target: str) -> None:
    found = windows_for(versions(windows=release, edition=edition), target)
    assert (found["release"], found["edition"], found["build"]) == (release, edition, RELEASES[release]["build"])
    names = {"aws": {"name"}, "azure": {"offer", "sku"}}[target]
    assert set(found[target]) == names
    assert all(release in value for key, value in found[target].items() if key in ("name", "sku"))
    if target == "aws":
        assert edition.capitalize() in found[target]["name"]
    else:
        assert ("core" in found[target]["sku"]) == (edition == "core")


def test_builds_tell_releases_apart() -> None:
    builds = [release["build"] for release in RELEASES.values()]
    assert builds == sorted(set(builds)) == [17763, 20348, 26100]


@pytest.mark.parametrize(
    ("release", "fix"), [(name, fix) for name, item in RELEASES.items() for fix in item["hot_fixes"]]
)
def test_hot_fix_is_a_registry_value_with_a_reason(release: str, fix: dict[str, typing.Any]) -> None:
    Registry(key=fix["key"], name=fix["name"], type="DWord", data=fix["data"])
    assert len(fix["reason"]) > 10, release


@pytest.mark.parametrize("line", MINORS)
def test_kubernetes_minor(line: str) -> None:
    item = MINORS[line]
    assert re.fullmatch(r"registry\.k8s\.io/pause:3\.[0-9]+(\.[0-9]+)?", item["pause"])
    assert minor(item["crictl"]) == line
    assert datetime.date.fromisoformat(item["released"]) < datetime.date.fromisoformat(item["end_of_life"])
    assert facts_for(versions(kubernetes=f"{line}.0"), "aws")["crictl"] == item["crictl"]


@pytest.mark.parametrize("line", LINES)
def test_containerd_line(line: str) -> None:
    assert LINES[line]["config_version"] == (2 if line.startswith("1.") else 3)
    assert (
        facts_for(versions(containerd=f"{line}.0"), "aws")["containerd_config_version"] == LINES[line]["config_version"]
    )
    datetime.date.fromisoformat(LINES[line]["end_of_life"])


@pytest.mark.parametrize("target", PROVIDERS)
def test_facts_of_cloudbase_init(target: str) -> None:
    facts = facts_for(versions(cloudbase_init="1.1.7"), target)["cloudbase_init"]
    assert facts["product"] == "Cloudbase-Init 1.1.7"
    assert len(facts["plugins"]) == len(set(facts["plugins"]))


def test_paths_have_the_form_of_paths() -> None:
    form = pydantic.TypeAdapter(WindowsPath)
    for path in (*paths().values(), *(path for target in PROVIDERS for path in stock_paths(target))):
        assert form.validate_python(path) == path


def test_pre_release_has_the_minor_of_its_release() -> None:
    assert minor("1.36.0-rc.1") == "1.36"
