"""The contents of the products: closed, without gap or overlap, and with a row for all that the steps download."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from imagegen.base import contents
from imagegen.catalog.facts import numbers, table
from imagegen.catalog.products import Product, find_product, find_products
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document, read_yaml
from imagegen.fetch.request import ArtifactRequest
from imagegen.plan.context import evaluate_steps
from imagegen.rehearsal.releases import (
    AnyRelease,
    Releases,
    fill_version,
    find_published,
    is_in_recorded_folder,
    product_releases,
)
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

STEPS = load_steps(contents.SHIPPED.step_roots)
STEP = STEPS["containerd"]
MISSING = Product("", "", "", "", "")
DOCS = Path(__file__).parents[2] / "docs" / "rehearsal.md"
ROWS: dict[str, AnyRelease] = {
    f"{product.name} {row.since or ''}".strip(): row
    for product in find_products()
    for row in product_releases(product.name)
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_lists_each_member_once(name: str) -> None:
    members = ROWS[name].members
    assert members == sorted(set(members))
    assert [path for path in members if path.startswith("/") or "\\" in path or ":" in path] == []
    # A folder is no file of the same name.
    assert len({path.rstrip("/").lower() for path in members}) == len(members)
    assert ROWS[name].unconfirmed != ""
    assert ROWS[name].left_out != ""


@pytest.mark.parametrize("product", [one.name for one in find_products() if len(one.contents) > 1])
def test_rows_of_one_product_follow_each_other(product: str) -> None:
    rows = product_releases(product)
    assert all(row.since and row.before for row in rows)
    assert [row.before for row in rows[:-1]] == [row.since for row in rows[1:]]
    bounds = [numbers(bound) for row in rows for bound in (str(row.since), str(row.before))]
    assert bounds == sorted(bounds)


def request(product: str, version: str, name: str = "a") -> ArtifactRequest:
    published = f"https://example.com/{name}"
    return ArtifactRequest("a", published, None, "file", "key", published, product=product, version=version)


@pytest.mark.parametrize(
    ("product", "version", "name", "row"),
    [
        ("containerd", "2.3.4", "a", "containerd 1.6"),
        ("containerd", "2.4.0-beta.0", "a", "containerd 1.6"),
        ("containerd", "1.5.18", "a", "containerd 1.4"),
        ("containerd", "1.3.9", "a", None),
        ("containerd", "3.0.0", "a", None),
        ("cloudbase-init", "1.1.8", "a", "cloudbase-init 1.1"),
        ("kubernetes", "1.36.4", "kubelet.exe", "kubernetes 1.23"),
        ("kubernetes", "1.22.17", "kubelet.exe", "kubernetes 1.21"),
        ("kubernetes", "1.22.17", "kube-log-runner.exe", None),
        ("kubernetes", "1.36.4", "kubelets.exe", None),
        ("kubernetes-node", "1.36.4", "a", "kubernetes-node 1.31"),
        ("openssh", "v9.4.0.0p1-Beta", "a", "openssh"),
        ("sdn", "242fb0c", "a", None),
    ],
)
def test_product_and_version_name_the_contents(product: str, version: str, name: str, row: str | None) -> None:
    found = find_published(STEP, request(product, version, name))
    assert (found and (found.version, found.name, found.release)) == (row and (version, name, ROWS[row]))


def test_a_recorded_folder_says_which_files_there_are() -> None:
    assert is_in_recorded_folder(STEP, request("kubernetes", "1.12.0", "kubelet.exe"))
    assert not is_in_recorded_folder(STEP, request("sdn", "242fb0c", "a.ps1"))


def test_the_example_of_the_docs_is_a_record(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(archives:.*?)```", DOCS.read_text(), re.DOTALL)
    (tmp_path / "releases.yml").write_text(text)
    (own,) = Releases.model_validate(read_yaml(tmp_path / "releases.yml", "releases.yml").data).rows
    url = "https://artifacts.example.com/tools/4.2/tool-windows.zip"
    assert [own.is_at(url, version) for version in ("4.2", "4.3", "")] == [True, False, False]


def test_a_text_is_filled_for_a_version() -> None:
    assert fill_version("v{version} {version_with_underscores} {folder}", "1.2.3") == "v1.2.3 1_2_3 {folder}"


def _unrecorded(kubernetes: str, containerd: str, cloudbase_init: str) -> list[str]:
    asked: dict[str, Any] = {
        "name": "example",
        "windows": {"release": "2022"},
        "kubernetes": {"version": kubernetes},
        "runtime": {"containerd": {"version": containerd}},
        "cloudbase_init": {"version": cloudbase_init},
        "targets": {"aws": {"region": "us-east-1"}},
    }
    spec = settle(ImageConfig.model_validate(asked), Document("config.yaml", {}, {}), "aws")
    return [
        name
        for step in evaluate_steps(spec, STEPS)
        for name, one in step.requests.items()
        if find_published(step.step, one) is None
    ]


def test_all_that_the_shipped_steps_download_is_recorded() -> None:
    """Of every version that the catalogue knows."""
    minors = [row["latest_patch"] for row in table("kubernetes")["minors"].values()]
    lines = [row["newest_patch"] for row in table("containerd")["lines"].values()]
    versions = list(table("cloudbase-init")["versions"])
    for kubernetes, containerd, cloudbase_init in itertools.zip_longest(minors, lines, versions):
        newest = (kubernetes or minors[-1], containerd or lines[-1], cloudbase_init or versions[-1])
        assert _unrecorded(*newest) == [], newest


@pytest.mark.parametrize(
    ("provider", "asked"),
    [
        ("aws", {}),
        ("aws", {"ssh": {"source": "zip"}, "csi_proxy": {}, "debug_tools": True, "kube_proxy": "service"}),
        ("aws", {"cni": {"plugin": "flannel"}, "kubernetes": {"version": "1.36.4", "service_manager": "nssm"}}),
        ("aws", {"cni": {"plugin": "calico", "mode": "vxlan"}}),
        ("aws", {"cni": {"plugin": "win-overlay"}, "kubernetes": {"version": "1.36.4", "source": "node-tarball"}}),
        ("aws", {"kubernetes": {"version": "1.22.17", "source": "node-tarball"}, "wins": {"version": "0.4.11"}}),
        ("aws", {"runtime": {"docker": {"version": "29.0.4", "cri_dockerd": "0.3.13"}}}),
        ("azure", {"gmsa": {}, "cni": {"plugin": "azure", "version": "1.6.21"}}),
    ],
    ids=str,
)
def test_a_release_has_what_the_steps_take_of_it(provider: str, asked: dict[str, Any]) -> None:
    base: dict[str, Any] = {
        "name": "example",
        "windows": {"release": "2022"},
        "kubernetes": {"version": "1.36.4"},
        "runtime": {"containerd": {"version": "2.3.4"}},
        "targets": {
            "aws": {"region": "us-east-1"},
            "azure": {"location": "eastus2", "gallery": {"resource_group": "a", "name": "b", "definition": "c"}},
        },
    }
    spec = settle(ImageConfig.model_validate({**base, **asked}), Document("config.yaml", {}, {}), provider)
    for step in evaluate_steps(spec, STEPS):
        for draft in step.drafts:
            request = step.requests.get(str(draft.fields.get("artifact")))
            if request is None or not (find_product(request.product) or MISSING).contents:
                continue
            published = find_published(step.step, request)
            assert published is not None
            members = [path.removeprefix("./") for path in published.release.members]
            if draft.kind == "extract":
                assert draft.fields["member"] in members
            depth = int(draft.fields.get("strip", 0))
            names = {"/".join(path.split("/")[depth:]) for path in members}
            assert {str(path).replace("\\", "/") for path in draft.fields.get("expect", ())} <= names


def test_each_product_is_downloaded_by_a_step() -> None:
    named = {meta.product for step in STEPS.values() for meta in step.meta.artifacts.values()} - {None}
    assert named == {product.name for product in find_products()}
    assert all(find_product(str(name)) for name in named)
