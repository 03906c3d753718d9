"""Makes the manifest of an image from the results of a run. Reads the machine's report, writes nothing."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import imagegen
from imagegen.artifacts.lock import LockedBase
from imagegen.artifacts.request import shown_url
from imagegen.build.toolchain import Toolchain
from imagegen.build.workspace import BuildFolder
from imagegen.manifest.model import (
    ImageManifest,
    Inputs,
    Plugin,
    RecordedArtifact,
    RecordedImage,
    RecordedPublish,
    Tools,
)
from imagegen.manifest.report import read_report
from imagegen.manifest.store import LocalStore, store_in
from imagegen.plan.model import BuildPlan
from imagegen.providers import CloudImage, Published, RunFacts
from imagegen.providers.provider import provider


@dataclasses.dataclass(frozen=True)
class PlannedImage:
    """What is known of an image before it is built: its plan, what the plan was made from, where its files go."""

    plan: BuildPlan
    config_file: str
    config_sha256: str
    """Of the canonical config."""
    base_request: Mapping[str, str]
    folder: BuildFolder
    out: Path

    @property
    def store(self) -> LocalStore:
        """Where it is recorded."""
        return store_in(self.out)


def make_manifest(
    image: PlannedImage, run: RunFacts, built: CloudImage, published: Published | None, tools: Toolchain | None
) -> ImageManifest:
    """The record. `tools` None: this run needed none."""
    plan = image.plan
    told, missing = read_report(image.folder.report, plan)
    return ImageManifest(
        name=plan.build.name,
        image_id=plan.image_id,
        target=plan.build.target,
        provider=plan.image.provider,
        labels=dict(run.labels),
        created=run.started,
        imagegen_version=imagegen.__version__,
        inputs=_inputs(image),
        versions=dict(plan.image.versions),
        tools=_tools(plan.image.provider, tools) if tools else None,
        built=RecordedImage.of(built),
        published=RecordedPublish.of(published) if published else None,
        report=told,
        report_missing=missing,
    )


def _inputs(image: PlannedImage) -> Inputs:
    plan = image.plan
    artifacts = {
        name: RecordedArtifact(url=shown_url(plan.build.downloads[name]), sha256=artifact.sha256, size=artifact.size)
        for name, artifact in plan.image.artifacts.items()
    }
    request, identity, place = image.base_request, plan.image.base, plan.build.base_place
    return Inputs(
        config_file=image.config_file,
        config_sha256=image.config_sha256,
        base=LockedBase(request=dict(request), identity=dict(identity), place=dict(place)),
        artifacts=artifacts,
        stated=dict(plan.build.stated),
    )


def _tools(cloud: str, tools: Toolchain) -> Tools:
    name = provider(cloud).plugin.name
    return Tools(packer=tools.packer_version, plugin=Plugin(name=name, version=tools.plugins[name].version))
