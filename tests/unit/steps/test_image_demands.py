"""What a node loses without each resource of the step images."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps, image_requests
from imagegen.settle.spec import settle
from tests.unit.steps.test_node_demands import STEPS, evaluated

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec
    from imagegen.steps.evaluate import EvaluatedStep

CORE = "mcr.microsoft.com/windows/servercore:ltsc2022"
APP = "registry.example.com/app:1"


def steps(containerd: str = "2.3.4", **asked: Any) -> dict[str, EvaluatedStep]:  # noqa: ANN401 - any section
    return {step.step.name: step for step in evaluated("1.34.9", containerd, **asked)}


def settled(**asked: Any) -> Spec:  # noqa: ANN401 - any section
    plain = {
        "name": "node",
        "kubernetes": {"version": "1.36.4"},
        "runtime": {"containerd": {"version": "2.3.4"}},
        "targets": {"aws": {"region": "us-east-1"}},
    }
    return settle(ImageConfig.model_validate(plain | asked), Document("config.yaml", {}, {}), "aws")


def resources(containerd: str = "2.3.4", **asked: Any) -> list[tuple[str, dict[str, Any]]]:  # noqa: ANN401 - any section
    return [(draft.kind, draft.fields) for draft in steps(containerd, **asked)["images"].drafts]


def names(found: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [fields["name"] for kind, fields in found if kind == "image"]


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


TARBALL = {"name": APP, "url": "https://artifacts.example.com/app.tar.gz"}


def test_a_tarball_may_bring_the_pause_image() -> None:
    """In a closed network nothing else brings it, and it must be pinned as well."""
    pause = names(resources(images=[APP]))[0]
    found = [
        fields for kind, fields in resources(image_tarballs=[TARBALL, {**TARBALL, "name": pause}]) if kind == "image"
    ]
    assert [(one["name"], one["artifact"], one.get("pinned", False)) for one in found] == [
        (pause, "image-tarball-2", True),
        (APP, "image-tarball-1", False),
    ]


def test_docker_has_its_images_in_its_own_store() -> None:
    """cri-dockerd looks for the pause image there, and containerd's programs do not exist."""
    docker = {"docker": {"version": "28.5.1", "cri_dockerd": "0.3.20"}}
    all_steps = steps(images=["registry.example.com/b:1"], runtime=docker, image_tarballs=[TARBALL])
    found = [draft.fields for draft in all_steps["images"].drafts if draft.kind == "image"]
    assert [one["name"] for one in found] == ["registry.k8s.io/pause:3.10.1", "registry.example.com/b:1", APP]
    assert {(one["docker"], one["ctr"], one["crictl"], one.get("pinned", False)) for one in found} == {
        (r"C:\Program Files\docker\docker.exe", None, None, False)
    }
    order = [*all_steps]
    assert order.index("images") > order.index("docker")


def test_only_isolated_pods_run_images_of_older_builds() -> None:
    """containerd has handlers for builds that Kubernetes supports; Docker runs any older one."""
    docker = {"runtime": {"docker": {"version": "19.03.14"}}, "kubernetes": {"version": "1.20.15"}}
    choices: tuple[tuple[str, dict[str, Any]], ...] = (("none", {}), ("isolation", {}), ("isolation", docker))
    found = {}
    for level, more in choices:
        spec = settled(images=[APP], windows={"release": "2022", "hyper_v": level}, **more)
        request = image_requests(evaluate_steps(spec, STEPS), spec)[APP]
        found[level, bool(more)] = (request.builds, request.isolated_builds[:2], request.isolated_builds[-1:])
    assert found == {
        ("none", False): ((20348,), (), ()),
        ("isolation", False): ((20348,), (19042, 19041), (17763,)),
        ("isolation", True): ((20348,), (19042, 19041), (14393,)),
    }


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


def test_only_allowed_places_are_asked_for_an_image() -> None:
    """The policy is about what imagegen itself asks, in the order in which containerd does."""
    mirrors = {
        "docker.io": ["https://a.example.com/x", "https://B.example.com:443/y"],
        "c.example.com": ["https://d.example.com"],
    }
    spec = settled(
        windows={"release": "2025"},
        runtime={"containerd": {"version": "2.3.4", "registry_mirrors": mirrors}},
        images=["library/nginx", "b.example.com/x:1"],
        artifacts={"allowed_hosts": ["b.example.com"]},
    )
    found = image_requests(evaluate_steps(spec, STEPS), spec)
    asked = {name: (request.mirrors, request.asks_registry, request.builds) for name, request in found.items()}
    assert found["b.example.com/x:1"].hosts.is_allowed("B.example.com:443")
    assert not found["b.example.com/x:1"].hosts.is_allowed("auth.example.com")
    assert asked == {
        "registry.k8s.io/pause:3.10.2": ((), False, (26100, 20348)),
        "docker.io/library/nginx:latest": (("https://B.example.com:443/y",), False, (26100, 20348)),
        "b.example.com/x:1": ((), True, (26100, 20348)),
    }
