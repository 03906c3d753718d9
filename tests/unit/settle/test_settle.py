"""What holds for a target: what the config says, else the catalogue, each with its origin."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.catalog.facts import numbers, table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.providers.registry import PROVIDERS
from imagegen.settle.facts import HotFix
from imagegen.settle.spec import settle

if TYPE_CHECKING:
    from imagegen.config.yaml import YamlPath
    from imagegen.settle.spec import Spec

MINORS = table("kubernetes")["minors"]
LINES = table("containerd")["lines"]
NEWEST = max(MINORS, key=numbers)
NEWEST_LINE = max(LINES, key=numbers)
GALLERY = {"resource_group": "images", "name": "images", "definition": "windows"}
FIX = HotFix(
    "HKLM:\\SYSTEM\\CurrentControlSet\\Policies\\Microsoft\\FeatureManagement\\Overrides",
    "1114842764",
    0,
    "a fix for container networking that Windows ships disabled",
)


def spec_of(
    target: str = "aws",
    *,
    windows: str = "2022",
    edition: str = "core",
    kubernetes: str = "1.36.4",
    containerd: str = "2.3.4",
    lines: dict[YamlPath, int] | None = None,
    more: dict[str, Any] | None = None,
) -> Spec:
    """The spec of a config with these versions."""
    asked = {
        "name": "settled",
        "windows": {"release": windows, "edition": edition},
        "kubernetes": {"version": kubernetes},
        "runtime": {"containerd": {"version": containerd}},
        "targets": {"aws": {"region": "us-east-1"}, "azure": {"location": "westeurope", "gallery": GALLERY}},
        **(more or {}),
    }
    return settle(ImageConfig.model_validate(asked), Document("config.yaml", asked, lines or {}), target)


def pause_for(kubernetes: str, windows: str) -> str | None:
    return spec_of(kubernetes=kubernetes, windows=windows).config.kubernetes.pause_image


def after(version: str) -> str:
    major, number = numbers(version)
    return f"{major}.{number + 1}"


@pytest.mark.parametrize("target", PROVIDERS)
def test_what_the_catalogue_answers(target: str) -> None:
    spec = spec_of(target)
    cloud = table("cloudbase-init")["clouds"][target]
    assert spec.config.kubernetes.pause_image == "registry.k8s.io/pause:3.10.2"
    assert spec.plugins == tuple(cloud["plugins"])
    assert len(set(spec.plugins)) == len(spec.plugins)
    assert spec.metadata_services == (cloud["metadata_service"],)
    facts = spec.facts
    assert (facts.windows_build, facts.crictl, facts.hot_fixes) == (20348, "1.36.0", (FIX,))
    assert (facts.containerd_config_version, facts.containerd_cni_bin_dirs) == (3, True)
    assert facts.cloudbase_init_product == "Cloudbase-Init 1.1.8"


def test_what_the_config_says_holds() -> None:
    mine = "registry.example.com/pause:3.11"
    lines: dict[YamlPath, int] = {("kubernetes", "pause_image"): 3, ("cloudbase_init", "plugins", "aws"): 7}
    asked = {
        "kubernetes": {"version": "1.36.4", "pause_image": mine},
        "cloudbase_init": {"plugins": {"aws": ["a.b.Own"]}},
    }
    spec = spec_of(lines=lines, more=asked)
    assert (spec.config.kubernetes.pause_image, spec.plugins) == (mine, ("a.b.Own",))
    assert [str(spec.origin(path).where) for path in lines] == ["config.yaml:3", "config.yaml:7"]
    assert {spec.origin(path).kind for path in lines} == {"file"}
    assert spec_of("azure", more=asked).plugins != ("a.b.Own",)


def test_every_value_has_its_origin() -> None:
    spec = spec_of(more={"cni": {"plugin": "flannel"}})
    assert (spec.config.cni.mode, spec.config.cni.vni, spec.config.cni.mtu) == ("vxlan", 4096, None)
    of_catalogue: tuple[YamlPath, ...] = (
        *(("kubernetes", "pause_image"), ("cni", "mode"), ("cni", "vni"), ("facts", "crictl")),
        *(("cloudbase_init", "plugins", "aws"), ("targets", "aws", "base_image")),
    )
    for path in of_catalogue:
        origin = spec.origin(path)
        assert (origin.kind, bool(origin.where), bool(origin.source), bool(origin.read)) == (
            "catalogue",
            True,
            True,
            True,
        )
    assert spec.origin(("cni", "mtu")).kind == spec.origin(("windows", "edition")).kind == "default"


def test_the_config_itself_stays_as_it_was_written() -> None:
    config = ImageConfig.model_validate(spec_of().document.data)
    settle(config, Document("config.yaml", {}, {}), "aws")
    assert config.kubernetes.pause_image is None
    assert dict(config.cloudbase_init.plugins)["aws"] is None


def test_newer_and_older_minors() -> None:
    newest = spec_of(kubernetes=f"{NEWEST}.0", containerd=f"{NEWEST_LINE}.0")
    newer = spec_of(kubernetes=f"{after(NEWEST)}.0", containerd=f"{after(NEWEST_LINE)}.0")
    assert newer.facts == dataclasses.replace(newest.facts, kube_log_runner=f"{after(NEWEST)}.0")
    assert newer.config.kubernetes.pause_image == newest.config.kubernetes.pause_image
    older = spec_of(kubernetes="1.30.1", containerd="1.7.30")
    assert older.config.kubernetes.pause_image == "registry.k8s.io/pause:3.9"
    assert (older.facts.crictl, older.facts.containerd_config_version) == ("1.30.1", 2)


def test_what_is_unknown_is_empty() -> None:
    """Rules are asked about such a config, and refuse it."""
    strange = spec_of(windows="1709", edition="full", kubernetes="1.9.0", containerd="0.9.0")
    assert strange.config.kubernetes.pause_image is None
    assert (strange.facts.windows_build, strange.facts.crictl, strange.facts.hot_fixes) == (None, None, ())
    assert (strange.facts.containerd_config_version, dict(strange.offered_image)) == (None, {})
    assert spec_of(windows="annual").facts.hot_fixes == ()


@pytest.mark.parametrize("kubernetes", [*(f"{name}.0" for name in MINORS), "1.99.0"])
def test_2025_gets_the_first_pause_with_its_layer(kubernetes: str) -> None:
    assert pause_for(kubernetes, "2025") == "registry.k8s.io/pause:3.10.2"


def test_pause_is_the_minors_own_elsewhere() -> None:
    for release in ("2019", "2022", "annual", "1709"):
        assert {name: pause_for(f"{name}.0", release) for name in MINORS} == {
            name: row["pause"] for name, row in MINORS.items()
        }


def test_pause_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MINORS, "1.36", {**MINORS["1.36"], "pause": "registry.k8s.io/pause:3.11"})
    assert pause_for("1.36.0", "2025") == "registry.k8s.io/pause:3.11"


def test_base_image_of_a_cloud() -> None:
    assert spec_of("aws").offered_image == {"name": "Windows_Server-2022-English-Core-Base-*"}
    image = {"offer": "windowsserver2022", "sku": "2022-datacenter-core-smalldisk-g2"}
    assert spec_of("azure").offered_image == image
    first = {"azure": {"location": "westeurope", "generation": 1, "gallery": GALLERY}}
    assert spec_of("azure", more={"targets": first}).offered_image["sku"] == "2022-datacenter-core-smalldisk"
    assert spec_of("aws", windows="annual").offered_image == {}


@pytest.mark.parametrize(
    ("kubernetes", "gates"),
    [
        ("1.19.16", ("WinDSR", "WinOverlay")),
        ("1.20.15", ("WinDSR",)),
        ("1.32.13", ("WinDSR",)),
        ("1.33.0", ()),
    ],
)
def test_kube_proxy_as_a_service_has_the_gates_that_are_off(kubernetes: str, gates: tuple[str, ...]) -> None:
    assert spec_of(kubernetes=kubernetes, more={"kube_proxy": "service"}).facts.kube_proxy_gates == gates
    assert spec_of(kubernetes=kubernetes).facts.kube_proxy_gates == ()
