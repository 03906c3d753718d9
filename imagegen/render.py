"""Renders the tree that Packer builds: its files by path. Pure: one plan has one sequence of bytes.

The HCL templates have the structure. All values are in image.auto.pkrvars.json. plan.json and the files of the guest
are in the bundle, the zip that is uploaded to the machine."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from imagegen.base.canonical import canonical
from imagegen.base.templating import render_text
from imagegen.plan.model import BuildPlan, Phase, PlannedResource
from imagegen.plan.resolve import Decision
from imagegen.steps import release_record

if TYPE_CHECKING:
    from imagegen.providers.provider import Provider
    from imagegen.providers.tags import ImageTags

PLAN_VERSION = 1


def guest_plan(plan: BuildPlan) -> bytes:
    """plan.json (docs/guest.md)."""
    image = plan.image
    record = {release_record.SOURCE: plan.release_record} if plan.release_record else {}
    return canonical(
        {
            "plan_version": PLAN_VERSION,
            "name": plan.build.name,
            "target": image.provider,
            "windows": {"release": image.windows["release"], "build": image.windows["build"]},
            "phases": [
                {
                    "name": phase.name,
                    "restart": phase.restart,
                    "steps": [
                        {
                            **vars(step),
                            **vars(plan.build.steps[step.name]),
                            "resources": [_with_record_digest(resource, record) for resource in step.resources],
                        }
                        for step in phase.steps
                    ],
                    "timeout_s": plan.build.phase_timeouts_s[phase.name],
                }
                for phase in image.phases
            ],
            "artifacts": {
                name: {"url": plan.build.downloads[name], **vars(artifact)}
                for name, artifact in image.artifacts.items()
            },
            "files": {**image.files, **record},
            "proxy": plan.build.proxy,
            "signatures": _signatures(plan, {**image.files, **record}),
        }
    )


def _signatures(plan: BuildPlan, files: Mapping[str, str]) -> dict[str, object]:
    """The signature of each file that must have one, and null for all others: the machine refuses a file that is not
    listed. `files` are those of the bundle. Empty if no file must be signed."""
    build = plan.build
    exempt = (*build.unsigned, *files.values()) if build.signatures or build.unsigned else ()
    return {**dict.fromkeys(exempt), **{digest: vars(one) for digest, one in build.signatures.items()}}


def _with_record_digest(resource: PlannedResource, record: Mapping[str, str]) -> dict[str, object]:
    """A resource as the machine gets it: the file of the release record has its digest."""
    digest = record.get(str(resource.fields.get("source")))
    return {**vars(resource), "fields": {**resource.fields, "sha256": digest}} if digest else vars(resource)


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


BUNDLE_PATH = "C:\\Windows\\Temp\\imagegen-bundle.zip"
REPORT_PATH = "C:\\ProgramData\\imagegen\\report.json"
START_PATH = "C:/Windows/Temp/imagegen-start.ps1"
GENERALISE_PATH = "C:/Windows/Temp/imagegen-generalise.ps1"
LOGS_PATH = "C:/Windows/Temp/imagegen-logs.ps1"
# Users may create files there, and read no others. The engine's folder does not exist before the first phase: Packer
# would create it with the rights of ProgramData. start.ps1 deletes the file at once.
CREDENTIALS_PATH = "C:/Windows/Temp/imagegen-credentials.ps1"
# The HCL variables of variables.pkr.hcl.j2. imagegen hides the values of variables whose names end like this.
CREDENTIALS_VARIABLE = "registry_secret"
DOWNLOADS_VARIABLE = "download_secret"


def render(decision: Decision, cloud: Provider) -> dict[str, bytes]:
    """The tree of a plan. `cloud` is the plan's provider."""
    plan, source, plan_json = decision.plan, cloud.source_values(decision.plan), guest_plan(decision.plan)
    plugin = cloud.plugin_for(plan.settings, plan.image.versions)
    bundle = bundle_zip(plan_json, decision.bundle)
    context = {
        "target": plan.image.provider,
        "builder": cloud.builder,
        "plugin": {"name": plugin.name, "source": plugin.source, "version": f">= {plugin.lowest}"},
        "source": source,
        "phases": [
            {
                "name": phase.name,
                "restart": phase.restart,
                "steps": list(dict.fromkeys(step.name for step in phase.steps)),
                "credentials": _credentials(plan, phase),
            }
            for phase in plan.image.phases
        ],
        "has_registry_credentials": bool(plan.build.registry_credentials),
        "has_private_downloads": bool(plan.downloading_phases),
        "credentials_path": CREDENTIALS_PATH,
        "begins_with_restart": any(
            resource.kind == "update" for phase in plan.image.phases for resource in phase.resources()
        ),
    }
    templates = {
        "plugins.pkr.hcl": "plugins.pkr.hcl.j2",
        "variables.pkr.hcl": "variables.pkr.hcl.j2",
        "source.pkr.hcl": f"{plan.image.provider}/source.pkr.hcl.j2",
        "build.pkr.hcl": "build.pkr.hcl.j2",
    }
    values = {
        "image": _image_values(plan, cloud.image_tags(plan.settings, plan.image.versions)),
        "guest": guest_values(plan, hashlib.sha256(bundle).hexdigest(), hashlib.sha256(plan_json).hexdigest()),
        "timeouts": {name: f"{minutes}m" for name, minutes in plan.build.timeouts_min.items()},
        plan.image.provider: source,
    }
    tree = {
        **{path: render_text(decision.templates[name], context).encode() for path, name in templates.items()},
        "image.auto.pkrvars.json": json.dumps(values, indent=2, sort_keys=True).encode() + b"\n",
        "guest/bundle.zip": bundle,
    }
    for path, data in {**decision.scripts, **decision.helpers}.items():
        name = path.rsplit("/", 1)[-1]
        if boot_file := cloud.boot_files.get(name):
            tree[f"guest/{boot_file.name}"] = boot_file.before + data + boot_file.after
        else:
            tree[f"guest/{name}"] = data
    return dict(sorted(tree.items()))


def _credentials(plan: BuildPlan, phase: Phase) -> list[str]:
    """Which credentials a phase needs: those of registries, and those of private artifacts."""
    needed = {"registries": _signs_in(plan, phase), "downloads": phase.name in plan.downloading_phases}
    return [name for name, is_needed in needed.items() if is_needed]


def _signs_in(plan: BuildPlan, phase: Phase) -> bool:
    """Whether the phase pulls images of registries that need credentials."""
    pulled = (str(resource.fields["reference"]) for resource in phase.resources() if resource.fields.get("reference"))
    return any(reference.partition("/")[0] in plan.build.registry_credentials for reference in pulled)


def _image_values(plan: BuildPlan, tags: ImageTags) -> dict[str, object]:
    image = plan.image
    runtime = "docker" if "docker" in image.versions else "containerd"
    return {
        "id": plan.image_id,
        "name": plan.build.name,
        "title": f"capi-windows-{image.windows['release']}-{runtime}-v{image.versions['kubernetes']}",
        "versions": dict(tags.versions),
        "base": {**image.base, "release": str(image.windows["release"])},
        "tags": dict(tags.others),
    }


def guest_values(plan: BuildPlan, bundle_sha256: str, plan_sha256: str) -> dict[str, object]:
    """The values of the HCL variable `guest`: the paths on the machine, and the command lines that Packer sends."""
    # A policy of the machine decides over the option. Without it, Windows Server's own policy runs the first script.
    policy = "" if plan.build.all_signed else "-ExecutionPolicy Bypass "
    powershell = f"powershell.exe -NoProfile -NonInteractive {policy}-File"
    pins = f"-Bundle {BUNDLE_PATH} -BundleSha256 {bundle_sha256} -PlanSha256 {plan_sha256}"
    return {
        "bundle_path": BUNDLE_PATH,
        "report_path": REPORT_PATH,
        "start_path": START_PATH,
        "generalise_path": GENERALISE_PATH,
        "generalise": f"{powershell} {GENERALISE_PATH}",
        "logs_path": LOGS_PATH,
        "logs": f"{powershell} {LOGS_PATH}",
        "phases": {
            phase.name: {
                "command": f"{powershell} {START_PATH} -Phase {phase.name} {pins}",
                "timeout": f"{plan.build.phase_timeouts_s[phase.name]}s",
            }
            for phase in plan.image.phases
        },
    }
