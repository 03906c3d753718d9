"""Writes samples to a folder. Replaces only files that an earlier run wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.errors import RefusedError
from imagegen.files import read_file, write_file
from imagegen.samples.make import INDEX, MARK, Samples

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST: Final = 1024 * 1024


def write_samples(samples: Samples, folder: Path) -> None:
    """Write the files. A file of an earlier run that is no longer a sample is removed."""
    texts = {**{file.name: file.text for file in samples.files}, INDEX: samples.readme}
    own = {path for path in sorted(folder.glob("*")) if path.suffix in (".yaml", ".md") and _is_own(path)}
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
    return MARK.encode() in read_file(path, limit=_LARGEST).partition(b"\n")[0]
