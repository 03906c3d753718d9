"""Arguments and options that several verbs share, the config that they name, and lists with aligned columns."""

import datetime
import os
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from imagegen.base.errors import ConfigError
from imagegen.base.files import check_name
from imagegen.base.lines import counted, one_line
from imagegen.cli.messages import messages
from imagegen.config.problems import closest, nearest, quoted
from imagegen.plan import loading
from imagegen.plan.loading import ConfigRequest, Loaded


def _check_folder(_context: click.Context, _option: click.Parameter, folder: Path) -> Path:
    # Packer writes below this folder, and expects its name in UTF-8.
    check_name(folder.absolute())
    return folder


# Each rehearsal has this label, with the value "true".
REHEARSAL_LABEL: Final = "rehearsal"


def parse_labels(words: Iterable[str]) -> dict[str, str]:
    """The labels, written as KEY=VALUE. Every cloud accepts this form as tags."""
    labels: dict[str, str] = {}
    for word in words:
        match = re.fullmatch(r"([a-z][a-z0-9_]{0,39})=([A-Za-z0-9._-]{1,200})", word)
        if match is None:
            raise ConfigError(
                f"{word!r} is not a label",
                hint="write key=value: lower-case letters, digits and underscores, then at most 200 letters, digits, "
                "dots, underscores and dashes",
            )
        labels[match[1]] = match[2]
    return labels


CONFIG = click.argument("config", type=click.Path(path_type=Path))
TARGET = click.option(
    "--target", metavar="NAME", help="A target, or a cloud for all its targets; required if the config has several."
)
TARGETS = click.option("--target", metavar="NAME", help="Only this target, or only this cloud's; by default all.")
SET = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PATH=VALUE",
    help="Replace one value of the config: --set kubernetes.version=1.35.8; may be repeated. The plan records it.",
)
LOCK = click.option(
    "--lock",
    "lock_file",
    type=click.Path(path_type=Path),
    help="The lock; by default <config>.lock.json beside the config.",
)
FROZEN = click.option(
    "--frozen",
    is_flag=True,
    help="Look up nothing: the lock must be complete. What the cache has of it is verified.",
)
REHEARSED_LOCK = click.option(
    "--rehearse", is_flag=True, help="Without a lock: make one from stand-ins of the cloud on this machine."
)
OUT = click.option(
    "--out",
    type=click.Path(path_type=Path),
    callback=_check_folder,
    default=Path("out"),
    show_default=True,
    help="The folder for trees, logs and manifests.",
)
MANIFEST = click.argument("manifest", metavar="MANIFEST")
STORE_FOLDER = click.argument("folder", required=False, type=click.Path(path_type=Path))
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
    help="text for people, json for programs.",
)
PLAIN = click.option("--plain", is_flag=True, help="Print plain lines, without a progress display, on a terminal too.")
QUIET = click.option("--quiet", "-q", is_flag=True, help="Print only warnings and errors.")


def today() -> datetime.date:
    """The date for which support is judged: SOURCE_DATE_EPOCH, as in other reproducible builds, or else today."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        now = (
            datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch else datetime.datetime.now(datetime.UTC)
        )
    except (ValueError, OverflowError, OSError):
        raise click.UsageError(f"SOURCE_DATE_EPOCH={epoch} is not a number of seconds since 1970") from None
    return now.date()


def load_config(config: Path, sets: tuple[str, ...]) -> Loaded:
    """Load the config, and print how many warnings `validate` has for it."""
    loaded = loading.load(ConfigRequest(config, today(), sets))
    if count := len(loaded.warnings) + len(loaded.unimplemented):
        messages().show(one_line(f"{config}: {counted(count, 'warning')}: run `imagegen validate` to see them"))
    return loaded


# A narrower terminal would break words, and longer lines are hard to read.
_NARROWEST, _WIDEST = 60, 100


def check_known(what: str, name: str, known: list[str], verb: str) -> None:
    """Reject an unknown name. The hint has the name that was probably meant, or else the verb that lists all names."""
    if name not in known:
        hint = nearest(name, known) if closest(name, known) else f"`imagegen {verb}` lists them"
        raise ConfigError(f"unknown {what} {quoted(name)}", hint=hint)


def columns(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Aligned columns. Only the last one wraps."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for *cells, text in rows:
        lead = "".join(f"{cell:<{room}}  " for cell, room in zip(cells, widths, strict=True))
        yield from textwrap.wrap(
            text, width, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )


def terminal_width() -> int:
    """How many characters a line may have."""
    return min(max(shutil.get_terminal_size((_WIDEST, 24)).columns, _NARROWEST), _WIDEST)
