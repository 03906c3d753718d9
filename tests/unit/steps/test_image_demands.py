"""What a node loses without each resource of the step images."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.config.model import ImageConfig
from imagegen.documents.yaml import Document
from imagegen.plan.context import evaluate_steps, image_requests
from imagegen.settle.spec import settle
from tests.unit.steps.test_node_demands import STEPS, evaluated

if TYPE_CHECKING:
    from imagegen.steps.evaluate import EvaluatedStep

CORE = "mcr.microsoft.com/windows/servercore:ltsc2022"
APP = "registry.example.com/app:1"


def steps(containerd: str = "2.3.4", **asked: Any) -> dict[str, EvaluatedStep]:  # noqa: ANN401 - any section
    return {step.step.name: step for step in evaluated("1.34.9", containerd, **asked)}


def resources(containerd: str = "2.3.4", **asked: Any) -> list[tuple[str, dict[str, Any]]]:  # noqa: ANN401 - any section
    return [(draft.kind, draft.fields) for draft in steps(containerd, **asked)["images"].drafts]


def names(found: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [fields["name"] for kind, fields in found if kind == "image"]


def test_without_images_nothing_is_pulled() -> None:
    assert "images" not in steps()


def test_the_drive_is_extended_before_anything_is_pulled() -> None:
    """Drive C of a cloud's small disk has 30 GB, whatever the config says of the disk: base images would not fit."""
    kinds = [kind for kind, _ in resources(images=[APP], windows={"release": "2022", "container_images": [CORE]})]
    assert kinds == ["volume", "image", "image", "image"]


@pytest.mark.parametrize(
    "asked", [{"images": [APP]}, {"windows": {"release": "2022", "container_images": [CORE]}}], ids=["images", "bases"]
)
def test_the_sandbox_comes_with_any_image(asked: dict[str, Any]) -> None:
    """Without it no pod starts, whatever else was pulled: it is the image of containerd's own configuration."""
    all_steps = steps(**asked)
    config = tomllib.loads(all_steps["containerd"].texts["files/containerd/config.toml"].decode())
    sandbox = config["plugins"]["io.containerd.cri.v1.images"]["pinned_images"]["sandbox"]
    assert names(resources(**asked)) == [sandbox, *asked.get("images", [CORE])]


def test_each_listed_image_is_pulled_and_the_pause_image_once() -> None:
    """An image that is missing is pulled by the pod, which takes minutes, or fails in a closed network."""
    pause = names(resources(images=[APP]))[0]
    asked: dict[str, Any] = {"images": [APP, pause], "windows": {"release": "2022", "container_images": [CORE]}}
    assert names(resources(**asked)) == [pause, CORE, APP]


@pytest.mark.parametrize(
    ("containerd", "pins"),
    [("1.5.18", False), ("1.6.21", False), ("1.6.22", True), ("1.7.2", False), ("1.7.3", True), ("2.4.2", True)],
)
def test_only_the_pause_image_is_pinned(containerd: str, pins: bool) -> None:
    """kubelet deletes unused images from a full disk. Of a containerd without this label it would never be set."""
    found = {
        fields["name"]: fields.get("pinned", False)
        for kind, fields in resources(containerd, images=[APP])
        if kind == "image"
    }
    assert [*found.values()] == [pins, False]


def test_containerd_and_crictl_are_there_before() -> None:
    order = [*steps(images=[APP])]
    assert order.index("images") > max(order.index("containerd"), order.index("kubernetes"))


def test_only_allowed_places_are_asked_for_an_image() -> None:
    """The policy is about what imagegen itself asks, in the order in which containerd does."""
    mirrors = {
        "docker.io": ["https://a.example.com/x", "https://B.example.com:443/y"],
        "c.example.com": ["https://d.example.com"],
    }
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2025"},
            "kubernetes": {"version": "1.36.2"},
            "runtime": {"containerd": {"version": "2.3.4", "registry_mirrors": mirrors}},
            "images": ["library/nginx", "b.example.com/x:1"],
            "artifacts": {"allowed_hosts": ["b.example.com"]},
            "targets": {"aws": {"region": "us-east-1"}},
        }
    )
    spec = settle(config, Document("config.yaml", {}, {}), "aws")
    found = image_requests(evaluate_steps(spec, STEPS), spec)
    asked = {name: (request.mirrors, request.asks_registry, request.builds) for name, request in found.items()}
    assert asked == {
        "registry.k8s.io/pause:3.10.2": ((), False, (26100, 20348)),
        "docker.io/library/nginx:latest": (("https://B.example.com:443/y",), False, (26100, 20348)),
        "b.example.com/x:1": ((), True, (26100, 20348)),
    }
