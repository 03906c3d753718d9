"""Makes the manifest of an image from the results of a run. Reads the machine's report, writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import imagegen
from imagegen.artifacts.lock import LockedBase
from imagegen.artifacts.request import shown_url
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
from imagegen.providers import provider

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.build.toolchain import Toolchain
    from imagegen.manifest.report import ExpectedReport
    from imagegen.plan.model import BuildPlan
    from imagegen.providers import CloudImage, Published, Run


def make_manifest(
    *,
    plan: BuildPlan,
    config: tuple[str, str],
    base_request: Mapping[str, str],
    tools: Toolchain | None,
    built: CloudImage | None,
    published: Published | None,
    report: Path,
    expected: ExpectedReport,
    run: Run,
) -> ImageManifest:
    """The record. `config` is the file's name and the canonical config's sha256; `tools` None: this run needed none."""
    told, missing = read_report(report, expected)
    return ImageManifest(
        name=plan.build.name,
        image_id=plan.image_id,
        target=plan.build.target,
        provider=plan.image.provider,
        labels=dict(run.labels),
        created=run.started,
        imagegen_version=imagegen.__version__,
        inputs=_inputs(plan, config, base_request),
        versions=dict(plan.image.versions),
        tools=_tools(plan.image.provider, tools) if tools else None,
        built=RecordedImage.of(built) if built else None,
        published=RecordedPublish.of(published) if published else None,
        report=told,
        report_missing=missing,
    )


def _inputs(plan: BuildPlan, config: tuple[str, str], base_request: Mapping[str, str]) -> Inputs:
    artifacts = {
        name: RecordedArtifact(url=shown_url(plan.build.downloads[name]), sha256=artifact.sha256, size=artifact.size)
        for name, artifact in plan.image.artifacts.items()
    }
    base = LockedBase(request=dict(base_request), identity=dict(plan.image.base), place=dict(plan.build.base_place))
    stated = dict(plan.build.stated)
    return Inputs(config_file=config[0], config_sha256=config[1], base=base, artifacts=artifacts, stated=stated)


def _tools(cloud: str, tools: Toolchain) -> Tools:
    name = provider(cloud).plugin.name
    return Tools(packer=tools.packer_version, plugin=Plugin(name=name, version=tools.plugins[name].version))
