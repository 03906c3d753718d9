"""Formats errors and manifests, and prints on standard output: text for people, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from imagegen.base.lines import counted, joined, one_line, without_brackets

if TYPE_CHECKING:
    from imagegen.base.errors import ImagegenError, Problem
    from imagegen.record.manifest import ImageManifest


def error_text(error: ImagegenError) -> str:
    """An error as it is shown: message, every problem or detail, hint."""
    return "\n".join(
        [
            one_line(f"error: {error.message}"),
            *map(problem_text, error.problems),
            *(one_line(f"  {detail}") for detail in error.details),
            # A hint may be several commands, each on a line.
            *([joined(f"hint: {error.hint}".split("\n"))] if error.hint else []),
        ]
    )


def usage_text(error: click.ClickException) -> str:
    """An error of click in the same form. Its message repeats the command line, which may have any characters."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return joined(error.format_message().split("\n"))
    message = error.format_message()
    # The only message with lines of its own: the choices of a missing parameter, which imagegen defines.
    first, *others = message.split("\n") if isinstance(error, click.MissingParameter) else [message]
    usage: list[str] = []
    if isinstance(error, click.UsageError) and (context := error.ctx):
        help_ = f"Try '{context.command_path} {context.help_option_names[-1]}' for help."
        usage = [*context.get_usage().split("\n"), help_, ""]
    return joined([*usage, f"error: {first}", *others])


def problem_text(problem: Problem) -> str:
    """A problem as it is shown: its place and what is wrong, and the hint below."""
    return joined(str(problem).split("\n"))


def print_as(form: str, value: object, lines: Iterable[str]) -> None:
    """Print a value as JSON, or else the lines that show it."""
    if form == "json":
        click.echo(_json_text(value))
    elif shown := list(lines):
        click.echo(joined(shown))


def _json_text(value: object) -> str:
    # json.dumps escapes newlines. Commands for a CI runner can only be in strings, where the bracket can be escaped.
    return without_brackets(json.dumps(value, indent=2, sort_keys=True), r"\u005b")


def print_manifest(manifest: ImageManifest, form: str) -> None:
    """Print a manifest on standard output, unless `form` is none."""
    if form != "none":
        print_as(form, manifest.model_dump(mode="json"), _manifest_lines(manifest))


def manifest_line(manifest: ImageManifest) -> str:
    """A manifest in one line."""
    images = manifest.published.images if manifest.published else []
    where = ", ".join(f"{image.region} {image.id}" for image in images) or "not published"
    failed = [name for name, note in manifest.notes.items() if isinstance(note, dict) and note.get("failed")]
    ending = f"  failed: {', '.join(failed)}" if failed else ""
    return f"{manifest.created}  {manifest.image_id[:16]}  {manifest.target:<5}  {manifest.name}  {where}{ending}"


def _manifest_lines(manifest: ImageManifest) -> list[str]:
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
    if manifest.published:
        lines.append(f"  published  version {manifest.published.version}")
        lines += [f"             {image.region}  {image.id}" for image in manifest.published.images]
    elif manifest.built:
        lines.append(f"  built      {manifest.built.region} {manifest.built.id}; not published")
    else:
        lines.append("  not built")
    report = _report_line(manifest.report) if manifest.report else f"no report: {manifest.report_missing}"
    lines.append(f"  guest      {report}")
    lines += [f"  open       {folder}" for folder in _open_folders(manifest.report or {"resources": []})]
    for key, note in sorted(manifest.notes.items()):
        lines.append(f"  {key}")
        lines += _note_lines(note)
    return lines


def _report_line(report: Any) -> str:  # noqa: ANN401 - JSON whose form docs/guest.md fixes
    resources = report["resources"]
    changed = sum(item["status"] == "changed" for item in resources)
    other = [item["id"] for item in resources if item["status"] not in ("ok", "changed")]
    verdict = f"not as planned: {', '.join(other)}" if other else "all as planned"
    signatures = list(report.get("signatures", {}).values())
    if signatures:
        there = signatures.count("machine")
        verdict += f"; {counted(len(signatures), 'signature')}, {there} checked on the machine too"
    return f"{counted(len(resources), 'resource')}, {changed} changed by the build, {verdict}"


def _open_folders(report: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """The folders that every account of a node may change, each with the reason."""
    for item in report["resources"]:
        if item.get("kind") == "directory" and (reason := (item.get("facts") or {}).get("open")):
            yield f"{item['id'].partition(':')[2]}: {reason}"


def _short(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _note_lines(note: object) -> Iterator[str]:
    for name, value in note.items() if isinstance(note, dict) else [("", note)]:
        if isinstance(value, list):
            yield f"    {name}:"
            yield from (f"      - {item}" for item in value)
        elif isinstance(value, dict):
            yield f"    {name}: {', '.join(f'{key} {_short(item)}' for key, item in value.items())}"
        else:
            yield f"    {name}: {value}"
