"""What the catalogue answers for one config's versions."""

from __future__ import annotations

import pytest

from imagegen.catalog.facts import Known, Versions, facts_for, known, minor, numbers, pause_for, table, windows_for
from imagegen.providers import PROVIDERS

MINORS = table("kubernetes")["minors"]
LINES = table("containerd")["lines"]
NEWEST = max(MINORS, key=numbers)
NEWEST_LINE = max(LINES, key=numbers)


def after(version: str) -> str:
    major, number = numbers(version)
    return f"{major}.{number + 1}"


NEXT = after(NEWEST)
ASKED = Versions(windows="2022", edition="core", kubernetes="1.36.2", containerd="2.3.4", cloudbase_init="1.1.8")


@pytest.mark.parametrize(
    ("version", "parts"),
    [("1.36.2", (1, 36, 2)), ("1.36.0-rc.1", (1, 36, 0)), ("3.10", (3, 10)), ("annual", ()), ("1." + "9" * 5000, ())],
)
def test_numbers(version: str, parts: tuple[int, ...]) -> None:
    assert numbers(version) == parts


def test_pre_release_has_the_minor_of_its_release() -> None:
    assert minor("1.36.0-rc.1") == "1.36"


@pytest.mark.parametrize(
    ("version", "found", "newer"),
    [
        ("1.36.2", "1.36", False),
        ("1.36.99", "1.36", False),
        ("1.36.0-rc.1", "1.36", False),
        ("1.14.0", "1.14", False),
        (f"{NEXT}.0", NEWEST, True),
        ("1.100.0", NEWEST, True),
        (f"{NEXT}.0-alpha.2", NEWEST, True),
    ],
)
def test_known_minor(version: str, found: str, newer: bool) -> None:
    row = known(MINORS, version)
    assert row is not None
    assert (row.minor, row.newer) == (found, newer)
    assert row.row is MINORS[found]


@pytest.mark.parametrize("version", ["1.13.12", "1.9.0", "2.0.0", "0.36.0", "annual", "1", "1." + "9" * 5000 + ".0"])
def test_unknown_minor(version: str) -> None:
    assert known(MINORS, version) is None


def test_lines_compare_as_numbers_and_a_gap_is_unknown() -> None:
    assert known({"1.9": {"it": 9}, "1.10": {"it": 10}}, "1.11.0") == Known({"it": 10}, "1.10", newer=True)
    assert known(LINES, "1.8.0") is None
    assert known(LINES, "3.0.0") is None


@pytest.mark.parametrize("kubernetes", [*(f"{name}.0" for name in MINORS), "1.99.0"])
def test_2025_gets_the_first_pause_with_its_layer(kubernetes: str) -> None:
    assert pause_for(kubernetes, "2025") == "registry.k8s.io/pause:3.10.2"


def test_pause_is_the_minors_own_elsewhere() -> None:
    for release in ("2019", "2022", "annual", "1709"):
        assert {name: pause_for(f"{name}.0", release) for name in MINORS} == {
            name: row["pause"] for name, row in MINORS.items()
        }
    with pytest.raises(KeyError, match=r"no Kubernetes 1\.13"):
        pause_for("1.13.0", "2025")


def test_pause_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MINORS, "1.36", {**MINORS["1.36"], "pause": "registry.k8s.io/pause:3.11"})
    assert pause_for("1.36.0", "2025") == "registry.k8s.io/pause:3.11"


@pytest.mark.parametrize("target", PROVIDERS)
def test_facts_of_a_config(target: str) -> None:
    cloud = table("cloudbase-init")["clouds"][target]
    assert facts_for(ASKED, target) == {
        "pause": "registry.k8s.io/pause:3.10.2",
        "crictl": "1.36.0",
        "hot_fixes": table("windows")["releases"]["2022"]["hot_fixes"],
        "containerd_config_version": 3,
        "containerd_cni_bin_dirs": True,
        "cloudbase_init": {
            "product": "Cloudbase-Init 1.1.8",
            "metadata_service": cloud["metadata_service"],
            "plugins": cloud["plugins"],
        },
    }
    assert len(cloud["plugins"]) == len(set(cloud["plugins"]))


def test_facts_of_newer_and_older_minors() -> None:
    newest = ASKED._replace(kubernetes=f"{NEWEST}.0", containerd=f"{NEWEST_LINE}.0")
    newer = ASKED._replace(kubernetes=f"{NEXT}.0", containerd=f"{after(NEWEST_LINE)}.0")
    assert facts_for(newer, "aws") == facts_for(newest, "aws")
    older = facts_for(ASKED._replace(kubernetes="1.30.1", containerd="1.7.30"), "aws")
    assert (older["pause"], older["crictl"], older["containerd_config_version"]) == (
        *("registry.k8s.io/pause:3.9", "1.30.0", 2),
    )


def test_what_is_unknown_is_empty() -> None:
    strange = Versions(windows="1709", edition="full", kubernetes="1.9.0", containerd=None, cloudbase_init="1.1.8")
    facts = facts_for(strange, "aws")
    assert {key: facts[key] for key in ("pause", "crictl", "hot_fixes", "containerd_config_version")} == {
        **{"pause": None, "crictl": None, "hot_fixes": [], "containerd_config_version": None}
    }
    assert facts_for(ASKED._replace(containerd="0.9.0"), "aws")["containerd_config_version"] is None
    assert facts_for(ASKED._replace(windows="annual"), "aws")["hot_fixes"] == []


def test_windows_of_a_config() -> None:
    azure = {"offer": "windowsserver2022", "sku": "2022-datacenter-core-smalldisk-g2"}
    common = {"release": "2022", "edition": "core", "build": 20348}
    assert windows_for(ASKED, "azure") == {**common, "azure": azure}
    assert windows_for(ASKED, "azure", "1")["azure"]["sku"] == "2022-datacenter-core-smalldisk"
    assert windows_for(ASKED, "aws") == {**common, "aws": {"name": "Windows_Server-2022-English-Core-Base-*"}}


def test_windows_that_a_cloud_does_not_offer_has_no_name_there() -> None:
    annual = {"release": "annual", "edition": "core", "build": 25398, "aws": None}
    assert windows_for(ASKED._replace(windows="annual"), "aws") == annual


@pytest.mark.parametrize(("release", "edition"), [("annual", "full"), ("1709", "core")])
def test_windows_that_there_is_not(release: str, edition: str) -> None:
    with pytest.raises(KeyError, match=r"full|1709"):
        windows_for(ASKED._replace(windows=release, edition=edition), "azure")
