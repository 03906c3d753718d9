"""`imagegen plan`: what will be on the machine, and in what two images differ."""

import collections
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pydantic

from imagegen.base.errors import ConfigError
from imagegen.base.files import read_file
from imagegen.base.lines import counted
from imagegen.cli import options
from imagegen.cli.arguments import decide_plan
from imagegen.cli.output import print_as
from imagegen.plan.model import BuildPlan, PlannedResource, PlannedSignature
from imagegen.record.diff import Side, compare, difference_lines, read_manifest, read_plan
from imagegen.record.manifest import ImageManifest

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
    "environment": ("data",),
}

# The manifest of a machine with thousands of files has a few megabytes, and so has a plan.
_LIMIT_BYTES: Final = 64 * 2**20


class _PlanOrDiff(click.Command):
    """`imagegen plan CONFIG`, and `imagegen plan diff A B`."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        if args[:1] == [diff.name]:
            return diff.make_context(f"{info_name} {diff.name}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(cls=_PlanOrDiff)
@options.CONFIG
@options.TARGET
@options.SET
@options.LOCK
@options.FROZEN
@options.REHEARSED_LOCK
@options.FORMAT
def plan(
    config: Path,
    target: str | None,
    sets: tuple[str, ...],
    lock_file: Path | None,
    frozen: bool,
    rehearse: bool,
    form: str,
) -> None:
    """Show what will be on the machine: phases, steps and every resource with its final values.

    \b
    A plan needs a lock, and `imagegen lock` needs a cloud account. Without an account:
      imagegen plan image.yaml --target prod --rehearse

    \b
    Compare two images:
      imagegen plan diff A B
    """
    decided = decide_plan(config, target, sets, lock_file, rehearse=rehearse, frozen=frozen).plan
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
    return [*lines, *_signature_lines(plan.build.signatures.values())]


def _signature_lines(signatures: Collection[PlannedSignature]) -> Iterator[str]:
    """The roots to which the signatures of programs and their timestamps lead, which the machine must trust too, and
    who signed."""
    if signatures:
        yield f"signatures ({counted(len(signatures), 'file')})"
    stamped = collections.Counter((one.timestamp_root, one.timestamp_root_thumbprint) for one in signatures)
    del stamped[None, None]
    for root, thumbprint in sorted({*((one.root, one.root_thumbprint) for one in signatures), *stamped}):
        yield f"  root {root}"
        yield f"    sha256 {thumbprint}"
        signers = collections.Counter(one.signer for one in signatures if one.root_thumbprint == thumbprint)
        yield from (f"    {counted(count, 'file')} signed by {signer}" for signer, count in sorted(signers.items()))
        if count := stamped[root, thumbprint]:
            yield f"    {counted(count, 'file')} with a timestamp"


def _resource_line(resource: PlannedResource) -> str:
    # The kind as the step has it.
    kind, _, label = resource.id.partition("/")[2].partition(":")
    shown = [
        f"{name}={resource.fields[name]}" for name in _SHOWN_FIELDS.get(kind, ()) if resource.fields[name] is not None
    ]
    shown += ["until=first-boot"] if resource.until else []
    return f"{kind:<11} {label}{'  ' + ' '.join(shown) if shown else ''}"


@click.command("diff")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@options.TARGET
@options.REHEARSED_LOCK
@options.FORMAT
def diff(a: Path, b: Path, target: str | None, rehearse: bool, form: str) -> None:
    """Show in what two images differ: versions, base image, artifacts and resources, as Markdown.

    \b
    A and B are configs, plans or manifests:
      imagegen plan diff windows-2022.yaml windows-2025.yaml --target prod
      imagegen plan diff old-plan.json image.yaml --target prod
      imagegen plan diff out/manifests/image/prod/1111.json out/manifests/image/prod/2222.json

    The lock of a config is in the same folder; --target and --rehearse are for configs. To see later what changed
    between two builds, save the output of `imagegen plan CONFIG --format json` at each build.
    """
    found = compare(*(_read_side(file, target, rehearse=rehearse) for file in (a, b)))
    print_as(form, found.as_json(), difference_lines(found))


def _read_side(file: Path, target: str | None, *, rehearse: bool) -> Side:
    if file.suffix != ".json":
        return read_plan(decide_plan(file, target, (), None, rehearse=rehearse).plan.as_json(), str(file))
    try:
        data = json.loads(read_file(file, limit=_LIMIT_BYTES))
    except FileNotFoundError:
        raise ConfigError(f"{file} does not exist", hint="give a config, a plan or a manifest") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not valid JSON: {error}", hint="give a config, a plan or a manifest") from None
    if not (isinstance(data, dict) and "manifest_version" in data):
        return read_plan(data, str(file))
    try:
        return read_manifest(ImageManifest.model_validate_json(json.dumps(data)))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole manifest"
        raise ConfigError(f"{file} is not a valid manifest: {place}: {first['msg']}") from None
