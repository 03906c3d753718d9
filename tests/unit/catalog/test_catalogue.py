"""The catalogue's tables: every fact has a source, and every row is complete in forms that its readers take."""

from __future__ import annotations

import datetime
import itertools
import re
from typing import TYPE_CHECKING, Any, get_args

import pydantic
import pytest

from imagegen.catalog.facts import folders, is_compatible, minor, numbers, paths, read_rows, sources, stock_paths, table
from imagegen.catalog.listing import tables
from imagegen.inspect.archive import ArchiveFormat
from imagegen.inspect.zip_reader import METHOD_NAMES, METHODS
from imagegen.providers.registry import PROVIDERS
from imagegen.steps.kinds import Registry
from imagegen.steps.resource import WindowsPath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ABOUT_THE_TABLE = {"title", "source", "sources"}
DATES = {"released", "end_of_life", "mainstream_end", "extended_end", "expires"}
VERDICTS = {"tested", "untested", "refused"}

RELEASES = table("windows")["releases"]
MINORS = table("kubernetes")["minors"]
LINES = table("containerd")["lines"]
PLUGINS = table("cni")["plugins"]


def day(text: str) -> datetime.date:
    """Only the long form: the short ones would not compare as texts."""
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", text)
    return datetime.date.fromisoformat(text)


def dicts(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any value that JSON has
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from dicts(item)


def scalars(value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 - any value that JSON has
    """The places of single values: files add to maps and lists, and would overwrite these."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from scalars(item, f"{path}.{key}")
    elif not isinstance(value, list):
        yield path


def sourceless(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - any value that JSON has
    """The facts that lie in no row with a source."""
    if isinstance(value, dict) and isinstance(value.get("source"), str):
        return
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from sourceless(item, f"{path}.{key}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for index, item in enumerate(value):
            yield from sourceless(item, f"{path}[{index}]")
    else:
        yield path


def facts_without_source(data: dict[str, Any]) -> list[str]:
    sections = {key: item for key, item in data.items() if key not in ABOUT_THE_TABLE | set(data.get("source", {}))}
    return [path for key, item in sections.items() for path in sourceless(item, key)]


def test_no_file_of_a_table_contradicts_another() -> None:
    for name in tables():
        files = [folder / f"{name}.json" for folder in folders()]
        places = list(itertools.chain(*(scalars(read_rows(file)) for file in files)))
        assert len(places) == len(set(places)), name


def test_a_provider_elsewhere_brings_its_rows_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "toycloud" / "catalogue"
    rows.mkdir(parents=True)
    (tmp_path / "toycloud" / "__init__.py").write_text("")
    (rows / "regions.json").write_text('{"toy": ["here"], "source": {"toy": "toy"}, "sources": {"toy": {}}}')
    (rows / "toys.json").write_text('{"title": "Toys"}')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(PROVIDERS, "toy", "toycloud")
    assert table("regions")["toy"] == ["here"]
    assert "us-east-1" in table("regions")["aws"]
    assert "toys" in tables()
    monkeypatch.delitem(PROVIDERS, "toy")
    assert "toy" not in table("regions")
    assert "toys" not in tables()


@pytest.mark.parametrize("name", tables())
def test_every_fact_names_a_source_that_is_there(name: str) -> None:
    data = table(name)
    assert facts_without_source(data) == []
    assert set(data.get("source", {})) <= set(data)
    named = {row["source"] for row in dicts(data) if isinstance(row.get("source"), str)}
    assert named | set(data.get("source", {}).values()) == set(sources(name))
    for source in sources(name).values():
        assert set(source) == {"from", "read"}
        assert len(source["from"]) > 20
        assert day(source["read"]) <= datetime.datetime.now(tz=datetime.UTC).date()


def test_a_fact_without_source_is_seen() -> None:
    data = {"title": "t", "sources": {}, "source": {"c": "s"}, "c": [1], "rows": {"a": {"source": "s"}, "b": {"x": 1}}}
    assert facts_without_source(data) == ["rows.b.x"]
    assert facts_without_source({"rows": [{"source": "s"}, {"x": 1}], "d": {}}) == ["rows[1].x", "d"]


@pytest.mark.parametrize("name", tables())
def test_dates_are_dates_and_what_is_not_tested_says_why(name: str) -> None:
    for row in dicts(table(name)):
        for key in DATES & set(row):
            if row[key] is not None:
                day(row[key])
        if "verdict" in row:
            assert row["verdict"] in VERDICTS
            assert (row["reason"] is None) == (row["verdict"] == "tested")
        if row.get("reason") is not None:
            assert len(row["reason"]) > 10


def test_minors_have_no_gap_and_one_form() -> None:
    assert list(MINORS) == [f"1.{number}" for number in range(14, 14 + len(MINORS))]
    for name, row in MINORS.items():
        assert day(row["released"]) < day(row["end_of_life"])
        assert minor(row["latest_patch"]) == minor(row["crictl"]) == name
        assert len(numbers(row["latest_patch"])) == len(numbers(row["crictl"])) == 3
        assert re.fullmatch(r"registry\.k8s\.io/pause:3\.[0-9]+(\.[0-9]+)?", row["pause"])
        assert row["host_process"] == ("no" if numbers(name) < (1, 22) else "gate" if name == "1.22" else "yes")
        assert row["dockershim"] == (numbers(name) < (1, 24))
        assert list(row["windows"]) == list(RELEASES)
    for older, newer in itertools.pairwise(MINORS.values()):
        assert day(older["released"]) < day(newer["released"])
        assert day(older["end_of_life"]) < day(newer["end_of_life"])
        assert numbers(older["pause"].rpartition(":")[2]) <= numbers(newer["pause"].rpartition(":")[2])


def test_containerd_lines() -> None:
    assert set(LINES) >= {"1.4", "1.5", "1.6", "1.7", "2.0", "2.1", "2.2", "2.3", "2.4"}
    assert list(LINES) == sorted(LINES, key=numbers)
    for name, row in LINES.items():
        day(row["end_of_life"])
        assert row["config_version"] == (2 if name.startswith("1.") else 3)
        assert row["host_process"] == (numbers(name) >= (1, 6))
        assert minor(row["newest_patch"]) == name
        first, last = row["kubernetes"]["first"], row["kubernetes"]["last"]
        assert {first, last} <= {None, *MINORS}
        assert row["kubernetes"]["reason"]
        assert (last is not None) == name.startswith("1.")
    assert LINES["1.7"]["kubernetes"]["last"] == "1.35"


def test_what_containerd_is_listed_with() -> None:
    listed = table("containerd")["tested"]
    assert list(listed) == list(MINORS)[-len(listed) :]
    for name, row in listed.items():
        assert {minor(version) for version in row["at_least"]} <= set(LINES)
        assert row["at_least"] == sorted(row["at_least"], key=numbers)
        assert all(is_compatible(LINES[minor(version)], f"{name}.0") for version in row["at_least"])
    # https://github.com/containerd/containerd/blob/v2.4.2/RELEASES.md
    assert {name: LINES[name]["end_of_life"] for name in ("1.6", "2.0", "2.1", "2.4")} == {
        **{"1.6": "2025-08-23", "2.0": "2027-03-31", "2.1": "2026-07-03", "2.4": "2027-05-16"}
    }


def test_releases_are_complete() -> None:
    assert {name: row["build"] for name, row in RELEASES.items()} == {
        **{"2019": 17763, "2022": 20348, "2025": 26100, "annual": 25398}
    }
    rows = {row["build"]: row for row in (*RELEASES.values(), *table("windows")["refused"].values())}
    assert len(rows) == 7
    assert len({frozenset(row) - {"note"} for row in RELEASES.values()}) == 1
    tags = table("images")["tags"]
    for name, row in RELEASES.items():
        assert row["end_of_life"] == (row["extended_end"] or row["mainstream_end"])
        assert list(row["images"]) == row["editions"]
        assert set(row["runs_images_of"]) <= set(RELEASES)
        assert {tags[tag] for tag in row["container_tags"].values()} <= set(row["runs_images_of"]), name
        assert (row["pause_at_least"] is None) == (row["pause_note"] is None)
        for fix in row["hot_fixes"]:
            Registry(key=fix["key"], name=fix["name"], type="DWord", data=fix["data"])
            assert day(fix["expires"]) > day(sources("windows")[fix["source"]]["read"])
    assert set(tags.values()) <= set(RELEASES)
    former = table("images")["former_tags"]
    assert not set(former) & set(tags)
    builds = {row["release"]: row["build"] for row in former.values()}
    refused = table("windows")["refused"]
    assert {name: row["build"] for name, row in refused.items()}.items() <= builds.items()
    assert not set(builds.values()) & {row["build"] for row in RELEASES.values()}
    assert {name: row["runs_images_of"] for name, row in RELEASES.items()} == {
        **{"2019": ["2019"], "2022": ["2022"], "2025": ["2025", "2022"], "annual": ["2022"]}
    }


def test_images_say_their_release_edition_and_generation() -> None:
    for release, row in RELEASES.items():
        for edition, clouds in row["images"].items():
            name = clouds["aws"]["name"]
            assert (name is None) == (release == "annual") == ("reason" in clouds["aws"])
            assert name is None or (release in name and edition.capitalize() in name)
            skus = clouds["azure"]["sku"]
            assert list(skus) == ["1", "2"]
            for generation, sku in skus.items():
                assert sku.startswith("23h2" if release == "annual" else release)
                assert ("core" in sku) == (edition == "core")
                assert sku.endswith(("-g2", "-gensecond")) == (generation == "2")


def test_names_of_base_images_say_what_they_are() -> None:
    facts = table("windows")
    assert set(facts["release_words"].values()) >= {*RELEASES, *facts["refused"]}
    for release, row in RELEASES.items():
        for edition, clouds in row["images"].items():
            names = {"aws": [clouds["aws"]["name"]] if clouds["aws"]["name"] else []}
            offer = clouds["azure"]["offer"]
            names["azure"] = [f"microsoftwindowsserver/{offer}/{sku}" for sku in clouds["azure"]["sku"].values()]
            for cloud, named in names.items():
                patterns = facts["base_images"][cloud]
                for name in map(str.lower, named):
                    words = re.findall(patterns["release"], name)
                    assert {facts["release_words"][word] for word in words} == {release}, name
                    assert [kind for kind in ("core", "full") if re.search(patterns[kind], name)] == [edition], name
            generation_2 = facts["base_images"]["azure"]["generation_2"]
            assert [bool(re.search(generation_2, name)) for name in names["azure"]] == [False, True]


def test_gates_and_flags_of_kubelet() -> None:
    for row in table("kubelet")["feature_gates"].values():
        first, locked, last = (numbers(row[key] or "") for key in ("first", "locked", "last"))
        assert first or last
        assert not (first and locked) or first <= locked
        assert not (locked and last) or locked <= last
    gate = table("kubelet")["feature_gates"]["WindowsHostProcessContainers"]
    assert MINORS[gate["first"]]["host_process"] == "gate"
    for row in table("kubelet")["flags"].values():
        assert row["last"] in MINORS


def test_gates_that_need_others() -> None:
    rows, defaults = table("kubelet")["gate_needs"], table("kubelet")["gate_defaults"]
    pairs = [(row["gate"], row["needs"]) for row in rows]
    assert pairs == sorted(set(pairs))
    assert {gate for pair in pairs for gate in pair} == set(defaults)
    for row in rows:
        assert numbers("1.35") <= numbers(row["first"]) <= numbers(row["last"] or row["first"])

    for row in rows:
        # AllAlpha and AllBeta set gates by their stage: it is known in every minor in which kubelet checks the pair.
        checked = [
            minor
            for minor in ("1.35", "1.36", "1.37")
            if numbers(row["first"]) <= numbers(minor) <= numbers(row["last"] or minor)
        ]
        stages = {defaults[gate]["stages"].get(minor) for gate in (row["gate"], row["needs"]) for minor in checked}
        assert stages <= {"alpha", "beta", "stable", "deprecated"}
    for gate, row in defaults.items():
        assert "alpha" not in [
            stage
            for minor, stage in row["stages"].items()
            if row["on_since"] and numbers(minor) >= numbers(row["on_since"])
        ], gate


@pytest.mark.parametrize(
    ("instance", "runs"),
    [
        *(
            ("m6i.large", True),
            ("g4dn.xlarge", True),
            ("g6e.xlarge", True),
            ("x2iedn.xlarge", True),
            ("u-6tb1.metal", True),
        ),
        *(
            ("m8g.large", False),
            ("c6gn.large", False),
            ("t4g.small", False),
            ("a1.large", False),
            ("g5g.xlarge", False),
        ),
        *(("im4gn.large", False), ("is4gen.large", False), ("x2gd.large", False), ("i4g.large", False)),
        *(("r7gd.large", False), ("hpc7g.4xlarge", False), ("mac1.metal", False), ("mac2-m2pro.metal", False)),
    ],
)
def test_aws_instance(instance: str, runs: bool) -> None:
    rows = [row for row in table("aws-instances")["families"] if "releases" not in row]
    assert any(re.fullmatch(row["pattern"], instance) for row in rows) != runs


@pytest.mark.parametrize(
    ("instance", "runs"),
    [
        *(
            (name, True)
            for name in ("t3.large", "m5.large", "m6i.large", "c5d.large", "r5.large", "i3en.large", "i4i.large")
        ),
        *((name, True) for name in ("g4dn.xlarge", "p4d.24xlarge", "x2iedn.xlarge", "d3.xlarge", "z1d.large")),
        *(
            (name, False)
            for name in ("t2.large", "m4.xlarge", "c3.large", "r4.large", "i3.large", "x1e.xlarge", "g3s.xlarge")
        ),
        *((name, False) for name in ("m5.metal", "m7i.metal-24xl", "u-6tb1.metal")),
    ],
)
def test_aws_instance_of_windows_2025(instance: str, runs: bool) -> None:
    rows = [row for row in table("aws-instances")["families"] if row.get("releases") == ["2025"]]
    assert any(re.fullmatch(row["pattern"], instance) for row in rows) != runs


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        *(("us-east-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")),
        *(
            ("eusc-de-east-1", "aws-eusc"),
            ("us-isob-east-1", "aws-iso-b"),
            ("eu-isoe-west-1", "aws-iso-e"),
            ("eu-west-1", "aws"),
        ),
    ],
)
def test_partition_of_a_region(region: str, partition: str) -> None:
    rows = table("clouds")["aws_partitions"]
    assert next(row["partition"] for row in rows if region.startswith(row["prefix"])) == partition


def test_regions_are_known_once_and_of_the_form_that_a_config_takes() -> None:
    for cloud, form in (("aws", r"[a-z]{2,4}(-[a-z]+)+-[0-9]"), ("azure", "[a-z0-9]+")):
        names = table("regions")[cloud]
        assert names == sorted(set(names))
        assert [name for name in names if not re.fullmatch(form, name)] == []


@pytest.mark.parametrize(
    "name", ["IMAGES_CLIENT_SECRET", "AZURE_CLIENT_SECRET", "ARM_CLIENT_SECRET", "CI_SECRET", "GOOD"]
)
def test_a_secrets_own_variable_means_nothing_else(name: str) -> None:
    assert not [row for row in table("variables")["names"] if re.fullmatch("|".join(row["patterns"]), name)]


def test_plugins() -> None:
    assert (
        len(
            {
                frozenset(row)
                - {"note", "overlay_only", "files", "programs", "is_cni_plugins", "network", "archive", "hns_values"}
                - {"needs_hyper_v", "containerd_only", "dockershim_only"}
                for row in PLUGINS.values()
            }
        )
        == 1
    )
    for row in PLUGINS.values():
        assert set(row["takes"]) <= {"version", "mode", "vni", "port", "mtu", "policy", "policy_version"}
        assert set(row["host_process"]) <= set(row["modes"])
        assert ("mode" in row["takes"]) == bool(row["modes"]) == (row["default_mode"] in row["modes"])
        assert set(row["overlay_modes"]) <= set(row["modes"])
        assert set(row.get("overlay_only", [])) <= set(row["takes"])
        assert row["newest"] is None or ("version" in row["takes"] and len(numbers(row["newest"])) == 3)
        assert list(row["windows"]) == list(RELEASES)


@pytest.mark.parametrize(
    ("size", "generations", "security"),
    [
        ("standard_d4s_v5", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_d8ads_v5", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_e4-2ds_v4", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_e104ibds_v5", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_d4s_v3", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_d4_v3", [1], {"standard"}),
        ("standard_d2_v2", [1], {"standard"}),
        ("standard_ds3_v2", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_d4lds_v6", [2], {"standard", "TrustedLaunch"}),
        ("standard_f4ams_v6", [2], {"standard", "TrustedLaunch"}),
        ("standard_f8s_v2", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_b2ms", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_b4als_v2", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_a4m_v2", [1], {"standard"}),
        ("standard_dc4ads_v5", [2], {"ConfidentialVM"}),
        ("standard_ec8es_v6", [2], {"ConfidentialVM"}),
        ("standard_dc4s_v3", [2], {"standard", "TrustedLaunch"}),
        ("standard_d4pds_v6", [], set()),
        ("standard_b2pts_v2", [], set()),
        ("standard_l16s_v3", [1, 2], {"standard", "TrustedLaunch"}),
        ("standard_m416ms_v2", [2], {"standard"}),
        ("standard_m64-32ms", [1, 2], {"standard"}),
        ("standard_dc4as_cc_v5", None, None),
        ("standard_nc24ads_a100_v4", None, None),
    ],
)
def test_azure_size(size: str, generations: list[int] | None, security: set[str] | None) -> None:
    found = [row for row in table("azure-sizes")["sizes"] if re.fullmatch(row["pattern"], size)]
    assert (found[0]["generations"] if found else None) == generations
    assert (set(found[0]["security"]) if found else None) == security


@pytest.mark.parametrize(
    ("limit", "fits", "refused"),
    [
        ("gallery", "cluster_api.2", "cluster-api"),
        ("gallery_definition", "capi-win-2025-containerd", "capi-win-"),
        ("gallery_version", "2026.1118.0", "1.36.0-rc.1"),
        ("gallery_version", "0.0.10", "01.2.3"),
        ("ami_name", "capa-ami windows (1.36.2) [a]./'@_", "capa:ami"),
        ("aks_windows_pool", "winp2", "2win"),
        ("computer_name", "win-md-0-x7k2p", "win_md"),
        ("host_name", "1-win-md-0", "win-md-"),
        ("host_name", "a1", "2026"),
    ],
)
def test_name_limit(limit: str, fits: str, refused: str) -> None:
    pattern = table("limits")["limits"][limit]["pattern"]
    assert re.match(pattern, fits)
    assert not re.match(pattern, refused)


def test_limits_are_the_clouds_own() -> None:
    assert {name: row["max"] for name, row in table("limits")["limits"].items()} == {
        **{
            "gallery": 80,
            "gallery_definition": 80,
            "gallery_version": 2**31 - 1,
            "gallery_replicas": 100,
            "azure_tags": 50,
            "aws_tags": 50,
        },
        **{"scale_set_prefix": 9, "aks_windows_pool": 6, "ami_name": 128, "computer_name": 15},
        **{"azure_computer_name": 15, "host_name": 63, "windows_path": 259, "windows_part": 255},
    }


def test_one_cloudbase_init_is_the_newest_and_the_last() -> None:
    versions = table("cloudbase-init")["versions"]
    assert [name for name, row in versions.items() if row["newest"]] == [max(versions, key=numbers)]


def test_paths_have_the_form_of_paths() -> None:
    form = pydantic.TypeAdapter(WindowsPath)
    for path in (*paths().values(), *(path for target in PROVIDERS for path in stock_paths(target))):
        assert form.validate_python(path) == path


def test_cumulative_updates_are_known_up_to_the_newest_images() -> None:
    """A KB without its revision counts as installed only under its own number, and the next month's replaces it."""
    newest: dict[int, int] = {}
    for row in table("updates")["cumulative"].values():
        newest[row["build"]] = max(newest.get(row["build"], 0), row["ubr"])
    assert newest == {17763: 8389, 20348: 5499, 25398: 2330, 26100: 33296}


def test_archives_that_are_read_are_those_that_tar_exe_of_every_release_unpacks() -> None:
    rows = table("archives")
    assert rows["tar_exe"].keys() == table("windows")["releases"].keys()
    known = [row for row in rows["tar_exe"].values() if row["libarchive"]]

    def unpacks(row: dict[str, Any], form: dict[str, Any]) -> bool:
        version, since = (tuple(map(int, text.split("."))) for text in (row["libarchive"], form["since"]))
        return version >= since and form["library"] in (None, *row["libraries"])

    forms = {name: form for name, form in rows["forms"].items() if form["since"]}
    everywhere = {name for name, form in forms.items() if all(unpacks(row, form) for row in known)}
    assert {name for name in everywhere if forms[name]["zip_method"] is None} == set(get_args(ArchiveFormat)) - {"zip"}
    assert {forms[name]["zip_method"] for name in everywhere} == {None, *METHODS}
    others = {form["zip_method"]: name for name, form in rows["forms"].items() if name not in everywhere}
    assert others == {method: f"zip, {name}" for method, name in METHOD_NAMES.items()}
