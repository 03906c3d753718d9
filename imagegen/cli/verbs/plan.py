"""`imagegen plan`: what will be on the machine."""

from pathlib import Path

import click

from imagegen.cli import options
from imagegen.cli.arguments import decide_plan
from imagegen.cli.output import print_as
from imagegen.plan.model import BuildPlan, PlannedResource

# The fields of a resource that are shown beside its name. Digests are only in the JSON.
_SHOWN_FIELDS = {
    "archive": ("into",),
    "extract": ("artifact", "member"),
    "file": ("source", "artifact"),
    "firewall": ("direction", "protocol", "port"),
    "image": ("digest",),
    "package": ("version",),
    "registry": ("type", "data"),
    "script": ("arguments", "good_exit_codes", "timeout_s"),
    "service": ("start", "state"),
    "environment": ("value",),
}


@click.command()
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.REHEARSED_LOCK
@options.FORMAT
def plan(
    config: Path, target: str | None, sets: tuple[str, ...], lock_file: Path | None, rehearse: bool, form: str
) -> None:
    """Show what will be on the machine: phases, steps and every resource with its final values.

    \b
    A plan needs a lock, and `imagegen lock` needs a cloud account. Without an account:
      imagegen plan image.yaml --target prod --rehearse
    """
    decided = decide_plan(config, target, sets, lock_file, rehearse=rehearse).plan
    print_as(form, decided.as_json(), plan_lines(decided))


def plan_lines(plan: BuildPlan) -> list[str]:
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
            lines += [f"    {_resource_line(resource)}" for resource in step.resources]
    lines.append(f"artifacts ({sum(item.size for item in image.artifacts.values()):,} bytes)")
    for name, artifact in image.artifacts.items():
        lines.append(f"  {name}  {plan.build.downloads[name]}")
        lines.append(f"    sha256 {artifact.sha256}")
    return lines


def _resource_line(resource: PlannedResource) -> str:
    label = resource.id.partition(":")[2]
    shown = [
        f"{name}={resource.fields[name]}"
        for name in _SHOWN_FIELDS.get(resource.kind, ())
        if resource.fields[name] is not None
    ]
    return f"{resource.kind:<11} {label}{'  ' + ' '.join(shown) if shown else ''}"
