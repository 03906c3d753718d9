"""Reads the files that a config names, such as the operator's own scripts. They are beside the file that names them."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from imagegen.base.errors import ConfigError, Problem
from imagegen.base.files import read_file
from imagegen.config.yaml import Document, YamlPath, dotted

# More than any script that people write. All of them are sent to the builder over WinRM.
LIMIT_BYTES: Final = 256 * 1024


@dataclasses.dataclass(frozen=True)
class OwnFile:
    """A file beside a config. `name` is its name without folders."""

    name: str
    data: bytes


@dataclasses.dataclass(frozen=True)
class GivenCertificate:
    """A certificate of the operator's. `thumbprint` is its SHA-1, as Windows shows it; the file has it as DER."""

    subject: str
    thumbprint: str
    file: OwnFile


def read_own_files(
    document: Document, named: Mapping[YamlPath, str], *, limit: int = LIMIT_BYTES
) -> tuple[dict[str, OwnFile], list[Problem]]:
    """The files by their key in the config, as `dotted` writes it, and a problem for each that cannot be used."""
    files: dict[str, OwnFile] = {}
    problems: list[Problem] = []
    for path, name in named.items():
        found = _read(document, path, name, limit)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            files[dotted(path)] = OwnFile(name.rpartition("/")[2], found)
    return files, problems


def _read(document: Document, path: YamlPath, name: str, limit: int) -> bytes | Problem:
    place = document.place(path)
    # A value of --set is relative to the config.
    beside = Path(place.file if place.line else document.file).parent
    file = beside / name
    # By os.path, because Path.resolve raises for circular links before Python 3.13.
    if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(beside)):
        return document.problem(path, f"{file} is outside {beside}", "write a path below the config's folder")
    try:
        return read_file(file, limit=limit)
    except FileNotFoundError:
        return document.problem(path, f"the file {file} does not exist", "write a path relative to the config")
    except ConfigError as error:
        return document.problem(path, error.message, error.hint or "check the file and its permissions")
