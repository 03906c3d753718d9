"""Reads files that a user names, within limits; replaces files and folders in one step; makes folders for one run.

A user's path may lead to an endless device, a pipe without a writer, or a file larger than the memory."""

import contextlib
import errno
import hashlib
import io
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Final

from imagegen.base.errors import ConfigError, ImagegenError, RefusedError
from imagegen.base.locks import lock, unlock

_FILE_MODE: Final = 0o644
_FOLDER_MODE: Final = 0o755
_HELD: Final = ".held"
# A run locks its folder within milliseconds after it made it.
_SURELY_ABANDONED_S: Final = 3600

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def check_name(path: Path) -> None:
    """Reject a file name that is not UTF-8: a plan or a manifest could not hold it."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise ConfigError(f"the name {shown} is not UTF-8", hint="rename the file") from None


def read_file(
    path: Path, *, limit: int, shown_as: str | None = None, error: type[ImagegenError] = ConfigError
) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. Anything else is an `error` that names the file.

    A missing file is a FileNotFoundError, because only the caller knows what that means."""
    file = shown_as or str(path)
    try:
        with open_regular(path, file, error) as opened:
            return _read(opened, file, limit, error)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as failed:
        # A name with a null character is a ValueError.
        raise error(f"{file} cannot be read: {getattr(failed, 'strerror', failed)}") from None


def open_regular(path: Path, shown_as: str, error: type[ImagegenError]) -> io.BufferedReader:
    """Open a regular file for reading. A folder, a pipe or a device is an `error` that names it."""
    return os.fdopen(_open_regular(path, os.O_RDONLY, shown_as, error), "rb")


def _open_regular(path: Path, flags: int, shown_as: str, error: type[ImagegenError]) -> int:
    try:
        # Without O_NONBLOCK, opening a pipe waits for its other end.
        handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as failed:
        if failed.errno != errno.ENXIO:
            raise
        mode = path.lstat().st_mode  # A socket cannot be opened.
    else:
        mode = os.fstat(handle).st_mode
        if stat.S_ISREG(mode):
            return handle
        os.close(handle)
    kind = _KINDS.get(stat.S_IFMT(mode), "a special file")
    raise error(f"{shown_as} is {kind}, not a regular file", hint="give the path of a regular file")


def _read(opened: io.BufferedReader, file: str, limit: int, error: type[ImagegenError]) -> bytes:
    size = os.fstat(opened.fileno()).st_size
    if size > limit:
        raise _too_large(file, f"{size}", limit, error)
    data = opened.read(limit + 1)
    # The kernel reports size 0 for files that it generates, and a file may grow while it is read.
    if len(data) > limit:
        raise _too_large(file, f"more than {limit}", limit, error)
    return data


def _too_large(file: str, size: str, limit: int, error: type[ImagegenError]) -> ImagegenError:
    return error(f"{file} is too large: it has {size} bytes, at most {limit} are allowed", hint="use a smaller file")


@contextlib.contextmanager
def replacing(file: Path, *, mode: int = _FILE_MODE) -> Iterator[IO[bytes]]:
    """A new file that replaces `file` when the block ends and its bytes are on the disk."""
    # mkstemp uses mode 0600 and a name that no other run uses.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        new.chmod(mode)
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)


def write_file(file: Path, content: bytes) -> None:
    """Replace the content of `file` in one step. A file that has this content already is not touched."""
    if file.is_file() and file.read_bytes() == content:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file) as new:
        new.write(content)


def swap_file(file: Path, content: bytes, sha256: str | None) -> bool:
    """Replace the content of `file`, if its bytes still have this sha256, or if it is still missing (None).

    Whether it is replaced. A file that another run changed meanwhile is not touched."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locking_briefly(file.with_name(f".{file.name}.writing")):
        now = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
        if now != sha256:
            return False
        write_file(file, content)
    return True


@contextlib.contextmanager
def _locking_briefly(file: Path) -> Iterator[None]:
    """Like `locking`, but `file` is removed at the end: it is in a folder of the user."""
    while True:
        with file.open("ab") as handle:
            lock(handle, file)
            # The run that held it may have removed it before this one locked it.
            if not is_at(handle, file):
                continue
            try:
                yield
            finally:
                file.unlink()
            return


def write_tree(tree: Mapping[str, bytes], folder: Path) -> None:
    """Make `folder` hold exactly the files of `tree`. A folder that holds them already is not touched.

    The new folder is complete before it replaces the old one. That takes two renames. Between them the folder is
    missing, but it never holds a mixture.
    """
    for key in tree:
        _check_path(key)
    if _has_exactly(folder, tree):
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as temporary:
        new = Path(temporary, "new")
        new.mkdir()
        for key, content in tree.items():
            (new / key).parent.mkdir(parents=True, exist_ok=True)
            (new / key).write_bytes(content)
        for path in (new, *new.rglob("*")):
            path.chmod(_FOLDER_MODE if path.is_dir() else _FILE_MODE)
        replace_folder(new, folder, Path(temporary, "old"))


def replace_folder(new: Path, folder: Path, old: Path) -> None:
    """Move the folder `new` to `folder`. An existing folder is moved to `old`, and back if that fails."""
    replaced = folder.exists()
    if replaced:
        folder.rename(old)
    try:
        new.rename(folder)
    except OSError:
        if replaced:
            old.rename(folder)
        raise


def _check_path(key: str) -> None:
    path = PurePosixPath(key)
    plain = path.as_posix() == key and path.parts and not path.is_absolute()
    if not plain or ".." in path.parts or "\\" in key or "\0" in key:
        raise ValueError(f"not a valid path of a file in a tree: {key!r}")


def _has_exactly(folder: Path, tree: Mapping[str, bytes]) -> bool:
    files = {folder / key: content for key, content in tree.items()}
    folders = {parent for file in files for parent in file.relative_to(folder).parents}
    found = set(folder.rglob("*"))
    return (
        {folder, *found} == {*files, *(folder / path for path in folders)}
        and not any(path.is_symlink() for path in found)
        and all(file.is_file() and file.read_bytes() == content for file, content in files.items())
    )


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder below `parent`, removed at the end. Also removes the folders of killed runs with this prefix."""
    _remove_abandoned(parent, prefix)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as name:
        folder = Path(name)
        making = folder / f"{_HELD}.new"
        with making.open("wb") as handle:
            # Locked before the rename, so the file never has its name without the lock. The lock ends with the process.
            lock(handle, making)
            making.rename(folder / _HELD)
            yield folder


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        # Another run may be removing the folder too, or may still use it.
        with contextlib.suppress(FileNotFoundError):
            status = folder.lstat()
            # Other users may share the folder for temporary files.
            if status.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
                continue
            held = folder / _HELD
            if held.exists():
                with held.open("rb") as handle:
                    if lock(handle, held, wait_s=0):
                        shutil.rmtree(folder)
            elif time.time() - status.st_mtime > _SURELY_ABANDONED_S:
                # The run was killed while it made the folder.
                shutil.rmtree(folder)


@contextlib.contextmanager
def locking(file: Path) -> Iterator[None]:
    """Keep other runs out of this block. `file` is made for it, and stays: its removal would be a race."""
    handle = _open_regular(file, os.O_RDWR | os.O_CREAT, str(file), RefusedError)
    try:
        lock(handle, file)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def locking_folder(folder: Path) -> Iterator[None]:
    """The same with a folder, in which no file is made for it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock(handle, folder)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def holding(handle: IO[bytes], file: Path) -> Iterator[bool]:
    """Keep `file` from `remove_unless_held` while the block runs. False if it is another file now, or none."""
    lock(handle, file, shared=True)
    try:
        # It may have been removed or replaced before it was locked.
        yield is_at(handle, file)
    finally:
        unlock(handle)


def remove_unless_held(file: Path) -> bool:
    """Remove the file, unless some run holds it. Whether it is gone."""
    try:
        with file.open("rb") as handle:
            if not lock(handle, file, wait_s=0):
                return False
            if is_at(handle, file):
                file.unlink()
    except FileNotFoundError:
        return True
    return True


def is_at(handle: IO[bytes], file: Path) -> bool:
    """Whether the opened file still has this name."""
    status = os.fstat(handle.fileno())
    try:
        found = file.lstat()
    except FileNotFoundError:
        return False
    return (status.st_dev, status.st_ino) == (found.st_dev, found.st_ino)
