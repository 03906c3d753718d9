"""A config in; the scene of its rehearsal out, or a refusal of what cannot be rehearsed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen import loading, pipeline
from imagegen.errors import RefusedError
from imagegen.rehearsal.clouds import stand_in
from imagegen.rehearsal.stage import Scene
from imagegen.rehearsal.supplies import make_supplies, unrecorded_releases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.errors import Problem


def refuse_what_is_not_played(loaded: loading.Loaded, target: str) -> None:
    """A config that names what the rehearsal's clouds do not have is refused, before they say it in other words."""
    if problems := [
        *_unplayed_settings(loaded, target),
        *_unknown_regions(loaded, target),
        *_pinned_overrides(loaded, target),
        *unrecorded_releases(pipeline.prepare_target(loaded, target).steps),
    ]:
        raise RefusedError(f"{loaded.file} cannot be rehearsed as it is", problems=problems)


def _unplayed_settings(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    spec = loaded.specs[target]
    unplayed = stand_in(spec.provider).unplayed
    for each in unplayed(spec.settings) if unplayed is not None else ():
        hint = f"--set 'targets.{target}.{'.'.join(map(str, each.path))}={each.instead}'"
        yield loaded.document.problem(("targets", target, *each.path), each.message, hint)


def _unknown_regions(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    spec = loaded.specs[target]
    cloud = stand_in(spec.provider)
    for path, region in cloud.regions(spec.settings).items():
        if region not in cloud.known_regions:
            message, instead = f"a rehearsal has no region {region}", ", ".join(sorted(cloud.known_regions))
            yield loaded.document.problem(("targets", target, *path), message, f"with --set, one of {instead}")


def _pinned_overrides(loaded: loading.Loaded, target: str) -> Iterator[Problem]:
    """Stand-ins are served for every artifact, and none has the bytes that an operator pinned."""
    policy = " --set artifacts.require_sha256=false" if loaded.config.artifacts.require_sha256 else ""
    requests = [request for step in pipeline.prepare_target(loaded, target).steps for request in step.requests.values()]
    for name, url in {request.override: request.url for request in requests if request.sha256}.items():
        message = "a rehearsal serves a stand-in for this artifact, which cannot have the config's sha256"
        hint = f"rehearse without the digest: --set overrides.{name}={url}{policy}"
        yield loaded.document.problem(("overrides", name), message, hint)


def scene_for(loaded: loading.Loaded, target: str, folder: Path) -> Scene:
    """Everything that is there before the build; its trees are written below `folder`."""
    config = loaded.config

    def tree() -> Path:
        return next(iter(sorted((folder / config.name).glob("*/tree"))), folder / "tree")

    spec = loaded.specs[target]
    cloud = stand_in(spec.provider)
    return Scene(
        cloud=spec.provider,
        release=config.windows.release,
        supplies=make_supplies(pipeline.prepare_target(loaded, target).steps),
        tree=tree,
        options=cloud.options(spec.settings, folder),
        user_data=cloud.user_data,
        proxy=config.proxy.https if config.proxy else None,
    )
