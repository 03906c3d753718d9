"""Values of the pipeline in, text for people or JSON for machines out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from imagegen.lines import counted, joined, one_line, without_brackets

if TYPE_CHECKING:
    from imagegen.build.toolchain import Toolchain
    from imagegen.errors import ImagegenError, Problem
    from imagegen.manifest.model import ImageManifest
    from imagegen.plan.model import BuildPlan, PlannedResource

# What a reader of a plan wants to see of a resource beside its name; digests are for machines.
_SHOWN = {
    "archive": ("into",),
    "file": ("source", "artifact"),
    "firewall": ("direction", "protocol", "port"),
    "package": ("version",),
    "registry": ("type", "data"),
    "service": ("start", "state"),
    "environment": ("value",),
}


def error_text(error: ImagegenError) -> str:
    """An error as it is shown: message, every problem or detail, hint."""
    parts = [one_line(f"error: {error.message}")]
    parts += [problem_text(problem) for problem in error.problems]
    parts += [one_line(f"  {detail}") for detail in error.details]
    if error.hint:
        # A hint may be commands to run, each on its line.
        parts.append(joined(f"hint: {error.hint}".split("\n")))
    return "\n".join(parts)


def usage_text(error: click.ClickException) -> str:
    """What click itself refuses, in the same form: its message repeats what was typed, as it was typed."""
    message = error.format_message()
    # Only the choices of a parameter that is missing, which are imagegen's own, stand on lines of their own.
    lines = message.split("\n") if isinstance(error, click.MissingParameter) else [message]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return joined([f"error: {lines[0]}", *lines[1:]])
    help_ = f"Try '{context.command_path} {context.help_option_names[-1]}' for help."
    return joined([*context.get_usage().split("\n"), help_, "", f"error: {lines[0]}", *lines[1:]])


def problem_text(problem: Problem) -> str:
    """A problem as it is shown: its place and what is wrong, and the hint below."""
    return joined(str(problem).split("\n"))


def print_json(value: object) -> None:
    """A value for machines on standard output."""
    # JSON escapes what ends a line; what a CI runner takes for a command anywhere in a line only stands in its strings.
    click.echo(_json_text(value))


def _json_text(value: object) -> str:
    return without_brackets(json.dumps(value, indent=2, sort_keys=True), r"\u005b")


def plan_text(plan: BuildPlan) -> str:
    """A plan as a tree."""
    image = plan.image
    lines = [
        f"{plan.build.name} for {plan.build.target}",
        f"  image id   {plan.image_id}",
        f"  windows    {image.windows['release']} {image.windows['edition']} (build {image.windows['build']})",
        f"  base       {', '.join(f'{key} {value}' for key, value in image.base.items())}",
        f"  versions   {', '.join(f'{key} {value}' for key, value in image.versions.items())}",
    ]
    for phase in image.phases:
        lines.append(f"{phase.name}{', then a restart' if phase.restart else ''}")
        if not phase.steps:
            lines.append("  every resource is tested again")
        for step in phase.steps:
            lines.append(f"  {step.name}: {plan.build.steps[step.name].summary}")
            lines += [f"    {line}" for resource in step.resources for line in _resource_lines(resource)]
    lines.append(f"artifacts ({sum(item.size for item in image.artifacts.values()):,} bytes)")
    for name, artifact in image.artifacts.items():
        lines.append(f"  {name}  {plan.build.downloads[name]}")
        lines.append(f"    sha256 {artifact.sha256}")
    return joined(lines)


def _resource_lines(resource: PlannedResource) -> Iterator[str]:
    label = resource.id.partition(":")[2]
    shown = [
        f"{name}={resource.fields[name]}" for name in _SHOWN.get(resource.kind, ()) if resource.fields[name] is not None
    ]
    yield f"{resource.kind:<11} {label}{'  ' + ' '.join(shown) if shown else ''}"


def tools_json(tools: Toolchain) -> dict[str, object]:
    """Where the tools are."""
    plugins = {name: {"version": item.version, "path": str(item.path)} for name, item in tools.plugins.items()}
    packer = {"version": tools.packer_version, "path": str(tools.packer)}
    return {"packer": packer, "plugins": plugins, "environment": dict(tools.environment)}


def tools_text(tools: Toolchain) -> str:
    """The same for people."""
    lines = [f"packer {tools.packer_version}  {tools.packer}"]
    lines += [f"plugin {name} {item.version}  {item.path}" for name, item in sorted(tools.plugins.items())]
    return joined(lines)


def print_manifest(manifest: ImageManifest, form: str) -> None:
    """A manifest on standard output."""
    if form == "json":
        print_json(manifest.model_dump(mode="json"))
    elif form == "text":
        click.echo(_manifest_text(manifest))


def manifest_line(manifest: ImageManifest) -> str:
    """A manifest in one line."""
    where = (
        ", ".join(f"{image.region} {image.id}" for image in manifest.published.images)
        if manifest.published
        else "not published"
    )
    return f"{manifest.created}  {manifest.image_id[:16]}  {manifest.target:<5}  {manifest.name}  {where}"


def _manifest_text(manifest: ImageManifest) -> str:
    lines = [
        f"{manifest.name} for {manifest.target}",
        f"  image id   {manifest.image_id}",
        f"  created    {manifest.created}",
        f"  versions   {', '.join(f'{key} {value}' for key, value in sorted(manifest.versions.items()))}",
    ]
    if manifest.labels:
        lines.append(f"  labels     {', '.join(f'{key}={value}' for key, value in sorted(manifest.labels.items()))}")
    if manifest.inputs.stated.get("allow_eol"):
        lines.append("  allowed    support that has ended")
    if sets := manifest.inputs.stated.get("set"):
        lines.append(f"  --set      {json.dumps(sets)}")
    if manifest.published is None:
        lines.append(
            f"  built      {manifest.built.region} {manifest.built.id}; not published"
            if manifest.built
            else "  not built"
        )
    else:
        lines.append(f"  published  version {manifest.published.version}")
        lines += [f"             {image.region}  {image.id}" for image in manifest.published.images]
    if manifest.report is None:
        lines.append(f"  guest      no report: {manifest.report_missing}")
    else:
        lines.append(f"  guest      {_report_line(manifest.report)}")
    for key, note in sorted(manifest.notes.items()):
        lines.append(f"  {key}")
        lines += _note_lines(note)
    return joined(lines)


def _report_line(report: Any) -> str:  # noqa: ANN401 - JSON whose form docs/guest.md fixes
    resources = report["resources"]
    changed = sum(item["status"] == "changed" for item in resources)
    other = [item["id"] for item in resources if item["status"] not in ("ok", "changed")]
    verdict = f"not as planned: {', '.join(other)}" if other else "all as planned"
    return f"{counted(len(resources), 'resource')}, {changed} changed by the build, {verdict}"


def _note_lines(note: object) -> Iterator[str]:
    for name, value in note.items() if isinstance(note, dict) else [("", note)]:
        if isinstance(value, list):
            yield f"    {name}:"
            yield from (f"      - {item}" for item in value)
        elif isinstance(value, dict):
            yield f"    {name}: {', '.join(f'{key} {item}' for key, item in value.items())}"
        else:
            yield f"    {name}: {value}"
