"""The record of published releases: closed, without gap or overlap, and with a row for all that the steps download."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from imagegen.base import contents
from imagegen.catalog.facts import numbers, table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document, read_yaml
from imagegen.plan.context import artifact_requests, evaluate_steps
from imagegen.rehearsal.releases import Release, Releases, catalogued_releases, fill_version
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

STEPS = load_steps(contents.SHIPPED.step_roots)
DOCS = Path(__file__).parents[2] / "docs" / "rehearsal.md"
KNOWN = catalogued_releases()
ROWS: dict[str, Release] = {**KNOWN.archives, **KNOWN.folders, **KNOWN.packages}
CONTAINERD = "https://github.com/containerd/containerd/releases/download"
CLOUDBASE = "https://github.com/cloudbase/cloudbase-init/releases/download"
KUBERNETES = "https://dl.k8s.io/release"


def test_rows_of_every_section_are_read() -> None:
    sections = set(table("releases")) - {"title", "sources"}
    assert sections == set(Releases.model_fields)
    assert len(ROWS) == sum(len(table("releases")[section]) for section in sections)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_lists_each_member_once(name: str) -> None:
    members = ROWS[name].members
    assert members == sorted(set(members))
    assert [path for path in members if path.startswith("/") or "\\" in path or ":" in path] == []
    # A folder is no file of the same name.
    assert len({path.rstrip("/").lower() for path in members}) == len(members)
    assert ROWS[name].unconfirmed != ""
    assert ROWS[name].left_out != ""


def test_rows_of_one_release_follow_each_other() -> None:
    places: dict[str, list[Release]] = {}
    for row in ROWS.values():
        places.setdefault(f"{row.address}/{getattr(row, 'file', '')}", []).append(row)
    assert {place: len(rows) for place, rows in places.items() if len(rows) > 1}
    for rows in places.values():
        assert all(row.since and row.before for row in rows)
        assert [row.before for row in rows[:-1]] == [row.since for row in rows[1:]]
        bounds = [numbers(bound) for row in rows for bound in (str(row.since), str(row.before))]
        assert bounds == sorted(bounds)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (f"{CONTAINERD}/v2.3.4/containerd-2.3.4-windows-amd64.tar.gz", ("2.3.4", "containerd 1.6")),
        (
            f"{CONTAINERD}/v2.4.0-beta.0/containerd-2.4.0-beta.0-windows-amd64.tar.gz",
            ("2.4.0-beta.0", "containerd 1.6"),
        ),
        (f"{CONTAINERD}/v1.5.18/containerd-1.5.18-windows-amd64.tar.gz", ("1.5.18", "containerd 1.4")),
        (f"{CONTAINERD}/v1.3.9/containerd-1.3.9-windows-amd64.tar.gz", None),
        (f"{CONTAINERD}/v3.0.0/containerd-3.0.0-windows-amd64.tar.gz", None),
        (f"{CONTAINERD}/v2.3.4/containerd-2.3.5-windows-amd64.tar.gz", None),
        (f"{CONTAINERD}/v2.3.4/containerd-2.3.4-windows-amd64.zip", None),
        (f"{CONTAINERD}/2.3.4/containerd-2.3.4-windows-amd64.tar.gz", None),
        (f"{CLOUDBASE}/1.1.8/CloudbaseInitSetup_1_1_8_x64.msi", ("1.1.8", "cloudbase-init 1.1")),
        (f"{CLOUDBASE}/1.1.8/CloudbaseInitSetup_1_1_7_x64.msi", None),
        (f"{CLOUDBASE}/1.1.8/CloudbaseInitSetup_1.1.8_x64.msi", None),
        (f"{KUBERNETES}/v1.36.4/bin/windows/amd64/kubelet.exe", ("1.36.4", "kubernetes 1.23")),
        (f"{KUBERNETES}/v1.22.17/bin/windows/amd64/kubelet.exe", ("1.22.17", "kubernetes 1.21")),
        (f"{KUBERNETES}/v1.22.17/bin/windows/amd64/kube-log-runner.exe", None),
        (f"{KUBERNETES}/v1.36.4/bin/windows/amd64/kubelet", None),
        ("https://dl.k8s.io/v1.36.4/kubernetes-node-windows-amd64.tar.gz", ("1.36.4", "kubernetes-node 1.31")),
        ("https://example.com/", None),
    ],
)
def test_a_url_names_release_and_version(url: str, found: tuple[str, str] | None) -> None:
    published = KNOWN.find(url)
    assert (published and (published.version, published.release)) == (found and (found[0], ROWS[found[1]]))


def test_docs_list_what_is_unconfirmed() -> None:
    rows = re.findall(r"^\| `([^`]+ [0-9.]+)` \| ([^|]+) \|$", DOCS.read_text(), re.MULTILINE)
    assert dict(rows) == {name: row.unconfirmed for name, row in ROWS.items() if row.unconfirmed is not None}
    assert len(rows) == len(dict(rows))


def test_the_example_of_the_docs_is_a_record(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(archives:.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "releases.yml").write_text(text)
    own = Releases.model_validate(read_yaml(tmp_path / "releases.yml", "releases.yml").data)
    published = own.find("https://artifacts.example.com/tools/4.2/tool-windows.zip")
    assert published is not None
    assert published.version == "4.2"


def test_a_record_without_a_version_is_of_one_file() -> None:
    row = {"address": "https://corp.example/tools/7.0", "file": "tool.zip", "format": "zip", "members": ["a.exe"]}
    own = Releases.model_validate({"archives": {"tool": {**row, "source": "listed", "unconfirmed": None}}})
    published = own.find("https://corp.example/tools/7.0/tool.zip")
    assert published is not None
    assert published.name == "tool.zip"
    assert own.find("https://corp.example/tools/7.1/tool.zip") is None


@pytest.mark.parametrize(
    ("url", "is_listed"),
    [
        (f"{KUBERNETES}/v1.36.4/bin/windows/amd64/kubelets.exe", True),
        (f"{KUBERNETES}/v1.12.0/bin/windows/amd64/kubelet.exe", True),
        (f"{KUBERNETES}/v1.36.4/bin/linux/amd64/kubelet", False),
        ("https://artifacts.example.com/agent-4.2.0.exe", False),
    ],
)
def test_a_recorded_folder_says_which_files_there_are(url: str, is_listed: bool) -> None:
    assert KNOWN.has_folder_of(url) == is_listed


def test_a_text_is_filled_for_a_version() -> None:
    assert fill_version("v{version} {version_with_underscores} {folder}", "1.2.3") == "v1.2.3 1_2_3 {folder}"


def _downloads(kubernetes: str, containerd: str, cloudbase_init: str) -> dict[str, str]:
    """The public URL of every artifact."""
    asked: dict[str, Any] = {
        "name": "example",
        "windows": {"release": "2022"},
        "kubernetes": {"version": kubernetes},
        "runtime": {"containerd": {"version": containerd}},
        "cloudbase_init": {"version": cloudbase_init},
        "targets": {"aws": {"region": "us-east-1"}},
    }
    spec = settle(ImageConfig.model_validate(asked), Document("config.yaml", {}, {}), "aws")
    return {name: item.published for name, item in artifact_requests(evaluate_steps(spec, STEPS)).items()}


def test_all_that_the_shipped_steps_download_is_recorded() -> None:
    """Of every version that the catalogue knows."""
    minors = [row["latest_patch"] for row in table("kubernetes")["minors"].values()]
    lines = [row["newest_patch"] for row in table("containerd")["lines"].values()]
    versions = list(table("cloudbase-init")["versions"])
    for kubernetes, containerd, cloudbase_init in itertools.zip_longest(minors, lines, versions):
        newest = (kubernetes or minors[-1], containerd or lines[-1], cloudbase_init or versions[-1])
        assert [name for name, url in _downloads(*newest).items() if KNOWN.find(url) is None] == [], newest


@pytest.mark.parametrize(
    ("channel", "version"), [("test", "29.3.0-rc.1"), ("test", "20.10.0-rc1"), ("stable", "29.3.0")]
)
def test_a_preview_is_found_by_the_name_of_its_archive(channel: str, version: str) -> None:
    found = KNOWN.find(f"https://download.docker.com/win/static/{channel}/x86_64/docker-{version}.zip")
    assert found is not None
    assert found.version == version
