"""Arguments and options that several verbs share."""

from pathlib import Path

import click

from imagegen.files import check_name


def _checked_folder(_context: click.Context, _option: click.Parameter, folder: Path) -> Path:
    """Packer writes below it, and takes its name for UTF-8."""
    check_name(folder.absolute())
    return folder


CONFIG = click.argument("config", type=click.Path(path_type=Path))
CONFIGS = click.argument("configs", nargs=-1, required=True, type=click.Path(path_type=Path))
TARGET = click.option(
    "--target", metavar="NAME", help="The target, or the cloud of several; may be left out where there is one."
)
SET = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PATH=VALUE",
    help="One value instead of the config's, recorded in the plan: --set kubernetes.version=1.36.3; may be repeated.",
)
LOCK = click.option(
    "--lock",
    "lock_file",
    type=click.Path(path_type=Path),
    help="The lock; by default <config>.lock.json beside the config.",
)
REHEARSED_LOCK = click.option(
    "--rehearse", is_flag=True, help="Without a lock: make one against stand-ins of the cloud on this machine."
)
OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    callback=_checked_folder,
    default=Path("out"),
    show_default=True,
    help="Where trees, logs and manifests go.",
)
LABELS = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label for lock, tags and manifest; may be repeated.",
)
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text for people, json for machines.",
)
PLAIN = click.option("--plain", is_flag=True, help="Plain lines instead of a drawn display, even on a terminal.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="Say nothing but warnings and errors.")
ON_ERROR = click.option(
    "--on-error",
    type=click.Choice(["cleanup", "abort", "ask"]),
    default="cleanup",
    show_default=True,
    help="What Packer does when the build fails: remove its machine, leave it, or ask on the terminal.",
)
