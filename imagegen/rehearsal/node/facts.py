"""The facts about kubeadm and kubelet by Kubernetes minor, and the version of a program on the machine's disk."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imagegen.catalog.facts import numbers, read_rows
from imagegen.rehearsal import clouds
from imagegen.rehearsal.boot.model import UnknownCommandError

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.files import Files

# imagegen.rehearsal.artifacts writes it into the stand-in of every program.
_VERSION = re.compile(rb"a stand-in for [^ ]*?([A-Za-z-]+)\.exe v?([0-9]+\.[0-9]+\.[0-9]+)[^ ]*, made for a rehearsal")


def read_facts(name: str) -> dict[str, Any]:
    """The facts of join.json or kubelet.json. Rows that name a cloud lie in the folder of its stand-in."""
    return read_rows(*_files(name))


@functools.cache
def _files(name: str) -> tuple[Path, ...]:
    here, stand_ins = Path(__file__).parent, Path(clouds.__file__).parent
    return (here / f"{name}.json", *(stand_ins / cloud / f"{name}.json" for cloud in clouds.cloud_names()))


def is_within(minor: str, first: str | None, last: str | None) -> bool:
    return numbers(first or "0") <= numbers(minor) and (last is None or numbers(minor) <= numbers(last))


def read_version(files: Files, path: str) -> str:
    """The version that a program's bytes hold."""
    found = _VERSION.search(files.read(path))
    if found is None:
        raise UnknownCommandError(f"{path} is not a stand-in of this rehearsal, so its version is unknown")
    return found[2].decode()
