"""How the plan pins a container image: by what it is pulled, and what the runtime must then show."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.errors import ConfigError
from imagegen.plan.resolve import find_missing
from imagegen.providers.provider import provider
from tests.conftest import REPOSITORY, load_today, make_test_lock

if TYPE_CHECKING:
    from imagegen.fetch.lock import Lock
    from imagegen.plan.target import PreparedTarget

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
APP, OLDER = "registry.example.com/app:1", "mcr.microsoft.com/windows/servercore:ltsc2019"
LISTED = f"images=[{APP}]"
TARBALL = f"image_tarballs=[{{name: '{APP}', url: 'https://artifacts.example.com/app.tar.gz'}}]"
DOCKER = ("runtime.containerd=null", "runtime.docker={version: 28.5.1, cri_dockerd: 0.3.20}", "kube_proxy=none")
ISOLATED = (
    "windows.hyper_v=isolation",
    f"windows.container_images=[{OLDER}]",
    "targets.aws.instance_types=[m8i.large]",
)


@functools.cache
def prepared(*sets: str) -> tuple[PreparedTarget, Lock]:
    loaded = load_today(BASE, *sets)
    return pipeline.prepare_target(loaded, "aws"), make_test_lock(loaded, "aws")


def planned(*sets: str) -> tuple[dict[str, dict[str, Any]], Lock]:
    target, lock = prepared(*sets)
    plan = pipeline.decide(target, lock).plan
    found = [one.fields for phase in plan.image.phases for one in phase.resources() if one.kind == "image"]
    return {str(fields["name"]): dict(fields) for fields in found}, lock


def test_containerd_pulls_the_index() -> None:
    images, lock = planned(LISTED)
    digest = lock.images[APP].digest
    assert (images[APP]["reference"], images[APP]["digest"]) == (f"registry.example.com/app@{digest}", digest)


def test_docker_pulls_the_manifest_and_shows_the_configuration() -> None:
    """By an index, Docker chooses a manifest by rules of its own."""
    images, lock = planned(LISTED, *DOCKER)
    locked = lock.images[APP]
    assert images[APP]["reference"] == f"registry.example.com/app@{locked.manifest}"
    assert {images[APP]["digest"]} == {locked.config} != {locked.digest, locked.manifest}


def test_an_image_that_needs_isolation_is_pulled_by_its_manifest() -> None:
    """In an index containerd finds no image that runs on the host's own kernel."""
    images, lock = planned(*ISOLATED)
    locked = lock.images[OLDER]
    assert images[OLDER]["reference"] == f"mcr.microsoft.com/windows/servercore@{locked.manifest}"
    assert images[OLDER]["digest"] == locked.manifest != locked.digest
    assert locked.os_version.startswith("10.0.17763.")


@pytest.mark.parametrize("runtime", [(), DOCKER], ids=["containerd", "docker"])
def test_a_tarball_is_pinned_by_what_it_has(runtime: tuple[str, ...]) -> None:
    images, lock = planned(TARBALL, *runtime)
    found = (lock.artifacts["image-tarball-1"].images or {})[APP]
    assert APP not in lock.images
    assert (images[APP]["artifact"], images[APP]["reference"]) == ("image-tarball-1", None)
    assert images[APP]["digest"] == (found.variants[0].config if runtime else found.digest)


@pytest.mark.parametrize(
    ("runtime", "change", "problem"),
    [
        ((), {"digest": None}, "containerd finds no name in this tarball"),
        (DOCKER, {"docker": False}, "Docker finds no name in this tarball"),
        ((), {"os_version": "10.0.17763.1"}, f"the tarball has {APP} only for Windows 10.0.17763.1"),
        ((), {}, f"the tarball has no image {APP} for Windows: it has registry.example.com/other:1"),
    ],
)
def test_a_tarball_that_cannot_be_imported_is_refused(
    runtime: tuple[str, ...], change: dict[str, Any], problem: str
) -> None:
    target, lock = prepared(TARBALL, *runtime)
    artifact = lock.artifacts["image-tarball-1"]
    found = (artifact.images or {})[APP]
    changed = found.model_copy(
        update={
            "digest": change.get("digest", found.digest),
            "variants": [one.model_copy(update=change) for one in found.variants],
        }
    )
    name = APP if change else "registry.example.com/other:1"
    artifacts = {**lock.artifacts, "image-tarball-1": artifact.model_copy(update={"images": {name: changed}})}
    with pytest.raises(ConfigError) as refused:
        pipeline.decide(target, lock.model_copy(update={"artifacts": artifacts}))
    [found_problem] = refused.value.problems
    assert problem in found_problem.message
    assert "docker save" in found_problem.hint or "release" in found_problem.hint


def test_a_lock_of_isolated_pods_serves_no_others() -> None:
    target, lock = prepared(*ISOLATED)
    cloud = provider(target.spec.provider)
    assert find_missing(target.spec, lock, target.steps, cloud) == []
    older = lock.images[OLDER].model_copy(update={"os_version": "10.0.16299.1"})
    other = lock.model_copy(update={"images": {**lock.images, OLDER: older}})
    assert find_missing(target.spec, other, target.steps, cloud) == [OLDER]


MIRRORED = ("artifacts.mirror=https://files.example.com/mirror", LISTED)


@pytest.mark.parametrize("runtime", [(), DOCKER], ids=["containerd", "docker"])
def test_an_image_of_a_mirror_is_imported_from_its_tarball(runtime: tuple[str, ...]) -> None:
    images, lock = planned(*MIRRORED, *runtime)
    locked, name = lock.images[APP], str(images[APP]["artifact"])
    assert lock.artifacts[name].url.startswith("https://files.example.com/mirror/oci/registry.example.com/app/1-")
    assert images[APP]["reference"] is None
    assert (images[APP]["digest"], images[APP]["layers"]) == (
        locked.config if runtime else locked.manifest,
        locked.layers,
    )
    target, _ = prepared(*MIRRORED, *runtime)
    plan = pipeline.decide(target, lock).plan
    assert plan.build.downloads[name] == lock.artifacts[name].url
    # The pause image comes with it.
    assert sum(one.startswith("image-") for one in plan.image.artifacts) == 2


def test_a_registry_in_the_network_is_pulled_from() -> None:
    images, lock = planned(*MIRRORED, "artifacts.pull_from=[registry.example.com]")
    assert images[APP]["reference"] == f"registry.example.com/app@{lock.images[APP].digest}"
    assert images["registry.k8s.io/pause:3.10.2"]["artifact"] is not None


def test_credentials_are_of_registries_from_which_images_are_pulled() -> None:
    credentials = (
        "registry_credentials=[{registry: registry.example.com, username_env: USER_NAME, password_env: USER_PASSWORD}]"
    )
    for sets, registries in ((MIRRORED, set()), ((LISTED,), {"registry.example.com"})):
        target, lock = prepared(*sets, credentials)
        assert (
            {*pipeline.decide(target, lock).plan.build.registry_credentials}
            == registries
            == {*target.credential_variables}
        )


def test_a_lock_without_the_tarball_of_an_image_is_incomplete() -> None:
    target, lock = prepared(*MIRRORED)
    cloud = provider(target.spec.provider)
    assert find_missing(target.spec, lock, target.steps, cloud) == []
    [name, _] = sorted(one for one in lock.artifacts if one.startswith("image-"))
    others = {key: one for key, one in lock.artifacts.items() if key != name}
    assert find_missing(target.spec, lock.model_copy(update={"artifacts": others}), target.steps, cloud) == [name]


def test_a_lock_whose_tarball_has_another_image_is_refused() -> None:
    target, lock = prepared(*MIRRORED)
    other = lock.images[APP].model_copy(update={"manifest": f"sha256:{'0' * 64}"})
    with pytest.raises(ConfigError) as refused:
        pipeline.decide(target, lock.model_copy(update={"images": {**lock.images, APP: other}}))
    [problem] = refused.value.problems
    assert problem.message.startswith(f"the tarball has {APP} as sha256:")
    assert f"`imagegen lock CONFIG --upgrade {APP}`" in problem.hint
