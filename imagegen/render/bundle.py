"""Makes plan.json and the bundle, the zip that is uploaded to the machine. Pure: one plan has one sequence of bytes."""

import dataclasses
import io
import zipfile
from collections.abc import Mapping

from imagegen.canonical import canonical
from imagegen.plan.model import BuildPart, BuildPlan, Phase

PLAN_VERSION = 1


def guest_plan(plan: BuildPlan) -> bytes:
    """plan.json (docs/guest.md)."""
    image = plan.image
    return canonical(
        {
            "plan_version": PLAN_VERSION,
            "name": plan.build.name,
            "target": image.provider,
            "windows": {"release": image.windows["release"], "build": image.windows["build"]},
            "phases": [_phase(phase, plan.build) for phase in image.phases],
            "artifacts": {
                name: {"url": plan.build.downloads[name], **dataclasses.asdict(artifact)}
                for name, artifact in image.artifacts.items()
            },
            "files": image.files,
            "proxy": plan.build.proxy,
        }
    )


def _phase(phase: Phase, build: BuildPart) -> dict[str, object]:
    steps = [{**dataclasses.asdict(step), **dataclasses.asdict(build.steps[step.name])} for step in phase.steps]
    return {**dataclasses.asdict(phase), "steps": steps, "timeout_s": build.phase_timeouts_s[phase.name]}


def bundle_zip(plan_json: bytes, files: Mapping[str, bytes]) -> bytes:
    """The bundle: plan.json and the bundled files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted({**files, "plan.json": plan_json}.items()):
            # The earliest time of a zip: the time of a file must not change the bundle.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            # By default zipfile writes the current operating system: the bundle must be the same on every system.
            entry.create_system = 3
            archive.writestr(entry, data)
    return buffer.getvalue()
