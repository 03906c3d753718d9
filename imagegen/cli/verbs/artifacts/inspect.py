"""`imagegen artifacts inspect`: what a download is, and what is in it."""

import datetime
import os
import tempfile
from pathlib import Path

import click

from imagegen.authenticode.errors import MalformedData
from imagegen.authenticode.model import Trust
from imagegen.authenticode.trust import LARGEST_BUNDLE, load_trust
from imagegen.base.console import Console
from imagegen.base.errors import ConfigError
from imagegen.base.files import read_file
from imagegen.cli import arguments, options
from imagegen.cli.inspection import inspection_json, inspection_lines, make_overrides
from imagegen.cli.output import print_as
from imagegen.fetch.download import fetch
from imagegen.fetch.request import shown_url
from imagegen.inspect.inspect import Inspection, check_file, inspect_file

# What a config cannot have yet: the file is on this machine only.
_UNKNOWN_HOST = "https://HOST"


@click.command("inspect")
@click.argument("source", metavar="URL|FILE")
@click.option(
    "--roots",
    type=click.Path(path_type=Path),
    help="A PEM file with the root certificates to trust, as artifacts.signatures.roots; by default public ones.",
)
@options.FORMAT
@options.PLAIN
@options.QUIET
def artifacts_inspect(source: str, roots: Path | None, form: str, plain: bool, quiet: bool) -> None:
    """Show what a download is: its programs with version and signature, and the lines that a config needs for it.

    \b
      imagegen artifacts inspect https://artifacts.example.com/containerd.tar.gz
      imagegen artifacts inspect ./kubelet.zip --roots our-roots.pem
    """
    console = arguments.open_run(plain=plain, quiet=quiet).console
    trust = _load_trust(roots)
    with tempfile.TemporaryDirectory(prefix="imagegen-inspect-") as folder:
        found = _inspect(source, trust, Path(folder), console)
    # Without a query, which may be a secret, and which no URL of a config has.
    name = Path(shown_url(source) if _is_url(source) else source).name
    overrides = make_overrides(found, name, shown_url(source) if _is_url(source) else f"{_UNKNOWN_HOST}/{name}")
    print_as(form, inspection_json(found, overrides), inspection_lines(found, overrides))


def _is_url(source: str) -> bool:
    return "://" in source


def _load_trust(roots: Path | None) -> Trust:
    now = datetime.datetime.now(datetime.UTC)
    if roots is None:
        return load_trust(now=now)
    try:
        return load_trust(now=now, roots=[read_file(roots, limit=LARGEST_BUNDLE)])
    except FileNotFoundError:
        raise ConfigError(
            f"{roots} does not exist", hint="give the path of a PEM file with root certificates"
        ) from None
    except MalformedData as error:
        raise ConfigError(f"{roots} is not a file of certificates: {error}", hint="give a PEM file") from error


def _inspect(source: str, trust: Trust, folder: Path, console: Console) -> Inspection:
    file, name = Path(source), source
    if _is_url(source):
        file, name = folder / "artifact", shown_url(source)
        fetch(source, file, environ=os.environ, console=console)
    check_file(file, name)
    with console.task(f"reading {name}", None):
        return inspect_file(file, name, trust, folder)
