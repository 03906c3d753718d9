"""`imagegen plan`, `explain` and `sign-list`: what will be on the machine, and why."""

import collections
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pydantic

from imagegen.base.errors import ConfigError, RefusedError
from imagegen.base.files import read_file, write_file
from imagegen.base.lines import counted
from imagegen.cli import options
from imagegen.cli.arguments import choose_targets, decide_plan
from imagegen.cli.options import terminal_width
from imagegen.cli.output import print_as
from imagegen.plan import loading
from imagegen.plan.explain import explain as explain_specs
from imagegen.plan.explain import explanation_json, explanation_lines, narrow
from imagegen.plan.model import BuildPlan, PlannedResource, PlannedSignature
from imagegen.record.diff import Side, compare, difference_lines, read_manifest, read_plan
from imagegen.record.manifest import ImageManifest
from imagegen.samples.make import sample_scripts
from imagegen.trust.block import is_signed, without_signature
from imagegen.trust.scripts import ListedScript, SignedCopies, list_own_scripts, look_for_copies
from imagegen.trust.shipped import read_shipped

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


@click.command()
@options.CONFIG
@click.argument("path", required=False)
@options.TARGETS
@options.SET
@options.FORMAT
def explain(config: Path, path: str | None, target: str | None, sets: tuple[str, ...], form: str) -> None:
    """Show where every value comes from, and why each step is in the plan.

    A value comes from a line of a config, from --set, from the catalogue (with its source), or is a default.

    \b
    PATH is a key, a section, `facts`, or `steps`. Only its values are shown:
      imagegen explain image.yaml
      imagegen explain image.yaml kubernetes.pause_image
      imagegen explain image.yaml steps.containerd --target prod
    """
    loaded = options.load_config(config, sets)
    specs = [loaded.specs[name] for name in loading.find_targets(loaded, target)]
    explanation = explain_specs(specs, loaded.steps)
    if path is not None:
        explanation = narrow(explanation, path)
    print_as(form, explanation_json(explanation), explanation_lines(explanation, terminal_width()))


@click.command("sign-list")
@options.CONFIG
@options.TARGET
@options.SET
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="A folder for the scripts that have no signed copy yet.",
)
@options.FORMAT
def sign_list(config: Path, target: str | None, sets: tuple[str, ...], out: Path | None, form: str) -> None:
    """List the PowerShell scripts of an image, to sign them for the execution policy AllSigned.

    Each line has the sha256 of a script, its path, and `signed` if artifacts.signatures.own_scripts has a signed copy.
    Your own scripts are listed too, and those of `imagegen samples`, which run in pods.

    \b
      imagegen sign-list image.yaml --target NAME --out to-sign
      (sign the files in to-sign, and move them to the folder of own_scripts)
      imagegen sign-list image.yaml --target NAME

    The list needs no lock. It changes with imagegen, with the config and with your scripts.
    """
    [chosen] = choose_targets(options.load_config(config, sets), target, one=True)
    shipped = read_shipped(chosen.loaded.contents.packer, chosen.spec.provider)
    sources = shipped.to_sign(chosen.cloud.boot_files)
    scripts = list_own_scripts(chosen.spec, chosen.loaded.steps, sources, sample_scripts())
    copies = look_for_copies(scripts, chosen.spec)
    if out is not None:
        _write([script for script in scripts if script.path in copies.faults], out)
    rows = [_row(script, copies) for script in scripts]
    print_as(
        form, rows, [*map(_line, rows), "", *_summary(rows, out), *_reasons(copies, chosen.trust_sources.crl_urls)]
    )


def _row(script: ListedScript, copies: SignedCopies) -> dict[str, object]:
    fault, judged = copies.faults.get(script.path), copies.judged.get(script.path)
    return {
        "path": script.path,
        "sha256": hashlib.sha256(script.data).hexdigest(),
        "size": len(script.data),
        "needed_by": "build" if script.on_image else "samples",
        "signed": fault is None,
        "reason": fault.text if fault else "",
        "signed_until": judged.end.strftime("%Y-%m-%d") if judged and judged.end else None,
    }


def _line(row: dict[str, object]) -> str:
    # The form of sha256sum, of which only the first two columns count.
    return f"{row['sha256']}  {row['path']}{'  signed' if row['signed'] else ''}"


def _summary(rows: list[dict[str, object]], out: Path | None) -> Iterator[str]:
    signed = sum(bool(row["signed"]) for row in rows)
    missing = len(rows) - signed
    written = f", written to {out}" if out and missing else ""
    yield f"{counted(len(rows), 'script')}: {signed} signed, {missing} to sign{written}"
    ends = [str(row["signed_until"]) for row in rows if row["signed_until"]]
    if ends:
        yield f"{counted(len(ends), 'signature')} without a timestamp: PowerShell accepts them until {min(ends)}"


def _reasons(copies: SignedCopies, crl_urls: tuple[str, ...]) -> Iterator[str]:
    """Why scripts have no copy that counts, each reason once, and what was not checked."""
    reasons = Counter(fault.summary for fault in copies.faults.values() if fault.summary)
    yield from (f"{counted(number, 'script')}: {reason}" for reason, number in reasons.most_common())
    if copies.data and crl_urls:
        yield f"not checked here: the CRLs at URLs ({', '.join(crl_urls)}), which `imagegen build` downloads"


def _write(scripts: list[ListedScript], out: Path) -> None:
    """Write the scripts. A signed copy of the same script is kept; any other file is refused."""
    for script in scripts:
        file = out / script.path
        if file.is_file() and without_signature(file.read_bytes()) != script.data:
            raise RefusedError(
                f"{file} exists, and has another text", hint="choose another folder for --out, or delete the file"
            )
    for script in scripts:
        file = out / script.path
        if not (file.is_file() and is_signed(file.read_bytes())):
            write_file(file, script.data)
