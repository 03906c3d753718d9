"""`imagegen artifacts inspect`: what a download is, and what is in it."""

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from imagegen.artifacts.archive import NAMES
from imagegen.artifacts.download import fetch
from imagegen.artifacts.inspect import Content, Inspection, inspect_file
from imagegen.artifacts.request import shown_url
from imagegen.cli import arguments, options
from imagegen.cli.output import print_as
from imagegen.console import Console
from imagegen.lines import counted


@click.command("inspect")
@click.argument("source", metavar="URL|FILE")
@options.FORMAT
@options.PLAIN
@options.QUIET
def artifacts_inspect(source: str, form: str, plain: bool, quiet: bool) -> None:
    """Show what a download is, and which files an archive has, each with its size and sha256.

    \b
      imagegen artifacts inspect https://artifacts.example.com/containerd.tar.gz
      imagegen artifacts inspect ./kubelet.zip
    """
    found = _inspect(source, arguments.open_console(plain=plain, quiet=quiet))
    print_as(form, dataclasses.asdict(found), _lines(found))


def _inspect(source: str, console: Console) -> Inspection:
    if "://" not in source:
        return inspect_file(Path(source), source)
    with tempfile.TemporaryDirectory(prefix="imagegen-inspect-") as folder:
        file = Path(folder, "artifact")
        fetch(source, file, environ=os.environ, console=console)
        return inspect_file(file, shown_url(source))


def _lines(found: Inspection) -> Iterator[str]:
    yield f"type     {_type(found.content)}"
    yield f"size     {found.content.size}"
    yield f"sha256   {found.content.sha256}"
    if found.members is not None:
        yield f"members  {counted(len(found.members), 'file')}"
        rows = [(str(one.size), one.sha256, path) for path, one in sorted(found.members.items())]
        # Not wrapped, so that a path can be copied.
        yield from (f"  {size:>12}  {sha256}  {path}" for size, sha256, path in rows)


def _type(content: Content) -> str:
    return NAMES.get(content.type, "a file of another type")
