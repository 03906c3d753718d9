"""Writes samples to a folder. Replaces only files that an earlier run wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.base.errors import RefusedError
from imagegen.base.files import write_file
from imagegen.samples.make import INDEX, Samples, first_line, name_patterns

if TYPE_CHECKING:
    from pathlib import Path


def write_samples(samples: Samples, folder: Path) -> None:
    """Write the files. A file of an earlier run that is no longer a sample is removed."""
    texts = {**{file.name: file.text for file in samples.files}, INDEX: samples.readme}
    own = {path for pattern in name_patterns() for path in folder.glob(pattern) if _is_own(path)}
    foreign = [
        path for path in (folder / name for name in texts) if path not in own and (path.exists() or path.is_symlink())
    ]
    if foreign:
        raise RefusedError(
            f"{foreign[0]} exists, and imagegen did not write it",
            hint="choose another folder for --out, or move the file",
        )
    for path in own - {folder / name for name in texts}:
        path.unlink()
    for name, text in texts.items():
        write_file(folder / name, text.encode())


def _is_own(path: Path) -> bool:
    """Whether an earlier run wrote the file."""
    if path.is_symlink() or not path.is_file():
        return False
    expected = first_line(path.name).encode() + b"\n"
    with path.open("rb") as opened:
        # The file may be somebody's, and of any size.
        return opened.read(len(expected)) == expected
