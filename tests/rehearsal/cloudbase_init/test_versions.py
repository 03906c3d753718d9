"""Which cloudbase-init a rehearsal runs: pip is a stand-in here, and writes what pip writes."""

from __future__ import annotations

import base64
import concurrent.futures
import dataclasses
import hashlib
import io
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ToolError
from imagegen.build.process import Completed
from imagegen.rehearsal.cloudbase_init import versions
from imagegen.rehearsal.cloudbase_init.versions import Choice, choose_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_INSTALLED = "1.1.8"
# Only a test that fails waits so long.
_WAIT_S = 20
# What pip 26.3 says; the addresses are shortened.
_NOT_THERE = """\
ERROR: Could not find a version that satisfies the requirement cloudbase-init==1.1.99 (from versions: 1.1.8, 1.1.9)
ERROR: No matching distribution found for cloudbase-init==1.1.99
"""
_OFFLINE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError("HTTPSConnection")': /simple/
ERROR: Could not find a version that satisfies the requirement cloudbase-init==1.1.7 (from versions: none)
ERROR: No matching distribution found for cloudbase-init==1.1.7
"""


@dataclasses.dataclass
class _Pip:
    """Puts version `gives` into the folder that it is told, or fails with `says`."""

    gives: str = ""
    says: str = ""
    overdue: bool = False
    lines: list[list[str]] = dataclasses.field(default_factory=list)
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(
        self,
        argv: Sequence[str | Path],
        *,
        environ: Mapping[str, str],
        cwd: Path | None = None,  # noqa: ARG002 - as in `process.run`
        timeout: float,
    ) -> Completed:
        self.lines.append([str(word) for word in argv])
        self.environ = environ
        assert timeout > 0
        folder = Path(argv[list(argv).index("--target") + 1])
        # pip unpacks before it fails, as where the disk is full.
        write_copy(folder, self.gives or "1.1.4", complete=bool(self.gives))
        if self.overdue:
            raise TimeoutError
        return Completed(1 if self.says else 0, "", self.says)


def write_copy(folder: Path, version: str, *, complete: bool = True) -> None:
    metadata = f"cloudbase_init-{version}.dist-info"
    files = {
        "cloudbaseinit/__init__.py": b"",
        "cloudbaseinit/init.py": b"def main(): ...\n",
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: cloudbase-init\nVersion: {version}\n".encode(),
    }
    listed = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()]
    # What pip lists without a digest, or as if it were in another folder.
    listed += [f"{metadata}/RECORD,,", "cloudbaseinit/__pycache__/init.pyc,,", f"../../bin/a,{_digest(b'a')},1"]
    for name, data in {**files, f"{metadata}/RECORD": "\n".join(listed).encode()}.items():
        if complete or not name.startswith(metadata):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def choose(tmp_path: Path, wanted: str, pip: _Pip, said: io.StringIO | None = None) -> Choice:
    console = Console(said or io.StringIO(), plain=True)
    environ = {"XDG_CACHE_HOME": str(tmp_path), "PIP_INDEX_URL": "https://mirror.example/simple"}
    return choose_version(wanted, environ=environ, console=console, run=pip, installed=_INSTALLED)


def test_the_installed_version_costs_nothing(tmp_path: Path) -> None:
    pip = _Pip(says="it is not asked")
    assert choose(tmp_path, _INSTALLED, pip) == Choice(_INSTALLED)
    assert (pip.lines, list(tmp_path.iterdir())) == ([], [])


def test_another_version_is_downloaded_once(tmp_path: Path) -> None:
    pip, folder = _Pip(gives="1.1.4"), tmp_path / "imagegen" / "cloudbase-init-1.1.4"
    assert choose(tmp_path, "1.1.4", pip) == Choice("1.1.4", (folder,))
    assert choose(tmp_path, "1.1.4", pip) == Choice("1.1.4", (folder,))
    [line] = pip.lines
    assert line[1:5] == ["-P", "-m", "pip", "install"]
    assert {"--no-deps", "--only-binary", "cloudbase-init==1.1.4"} <= set(line)
    assert pip.environ["PIP_INDEX_URL"] == "https://mirror.example/simple"
    assert {path.name for path in folder.parent.iterdir()} == {"cloudbase-init-1.1.4", "cloudbase-init.lock"}


@pytest.mark.parametrize(
    ("wanted", "pip", "reason"),
    [
        ("1.1.99", _Pip(says=_NOT_THERE), "the package index has no wheel of cloudbase-init 1.1.99"),
        ("1.1.7", _Pip(says=_OFFLINE), "pip cannot reach the package index to download it"),
        ("1.1.7", _Pip(says="/usr/bin/python: No module named pip\n"), "this Python has no pip to download it"),
        ("1.1.7", _Pip(says="WARNING: x\nERROR: no space left\n"), "pip could not download it: no space left"),
        ("1.1.7", _Pip(says="killed\n"), "pip could not download it: it ended with 1"),
        ("1.1.7", _Pip(overdue=True), "pip did not download it within 120 s"),
        ("1.1.7", _Pip(gives="1.1.6"), "pip downloaded something else than cloudbase-init 1.1.7"),
    ],
    ids=["no such version", "offline", "no pip", "disk full", "no reason", "too slow", "another version"],
)
def test_without_the_images_version_the_installed_one_runs_and_says_why(
    tmp_path: Path, wanted: str, pip: _Pip, reason: str
) -> None:
    assert choose(tmp_path, wanted, pip) == Choice(_INSTALLED, (), reason)
    assert [path.name for path in (tmp_path / "imagegen").iterdir()] == ["cloudbase-init.lock"]


@pytest.mark.parametrize(
    ("wanted", "copies", "nearest"),
    [("1.1.7", ["1.1.4", "1.1.9"], "1.1.4"), ("1.1.10", ["1.1.9"], "1.1.9"), ("1.1.2", ["1.1.4", "1.1.9"], "1.1.4")],
)
def test_the_nearest_may_be_a_copy_of_an_earlier_run(
    tmp_path: Path, wanted: str, copies: list[str], nearest: str
) -> None:
    folders = {version: tmp_path / "imagegen" / f"cloudbase-init-{version}" for version in copies}
    for version, folder in folders.items():
        write_copy(folder, version)
    found = choose(tmp_path, wanted, _Pip(says=_OFFLINE))
    assert (found.version, found.modules) == (nearest, (folders[nearest],))


_DAMAGES: dict[str, Callable[[Path], object]] = {
    "without pip's lists": lambda folder: shutil.rmtree(folder / "cloudbase_init-1.1.4.dist-info"),
    "without the list of files": lambda folder: (folder / "cloudbase_init-1.1.4.dist-info" / "RECORD").unlink(),
    "half a list of files": lambda folder: (folder / "cloudbase_init-1.1.4.dist-info" / "RECORD").write_text("a,b,c"),
    "a list of other files": lambda folder: (folder / "cloudbase_init-1.1.4.dist-info" / "RECORD").write_text(""),
    "without the modules": lambda folder: shutil.rmtree(folder / "cloudbaseinit"),
    "without a module": lambda folder: (folder / "cloudbaseinit" / "init.py").unlink(),
    "an empty module": lambda folder: (folder / "cloudbaseinit" / "init.py").write_bytes(b""),
}


@pytest.mark.parametrize("damage", _DAMAGES.values(), ids=_DAMAGES.keys())
def test_a_damaged_copy_is_replaced(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    folder = tmp_path / "imagegen" / "cloudbase-init-1.1.4"
    write_copy(folder, "1.1.4")
    damage(folder)
    (folder / "left").touch()
    assert choose(tmp_path, "1.1.4", _Pip(gives="1.1.4")).modules == (folder,)
    assert not (folder / "left").exists()


def test_without_a_place_for_it_the_installed_one_runs(tmp_path: Path) -> None:
    console = Console(io.StringIO(), plain=True)
    found = choose_version("1.1.4", environ={}, console=console, run=_Pip(gives="1.1.4"), installed=_INSTALLED)
    assert found == Choice(_INSTALLED, (), "imagegen has no cache folder")
    (tmp_path / "imagegen").touch()
    found = choose(tmp_path, "1.1.4", _Pip(gives="1.1.4"))
    assert found.version == _INSTALLED
    assert "imagegen" in found.reason


def test_a_damaged_copy_is_never_the_nearest(tmp_path: Path) -> None:
    folder = tmp_path / "imagegen" / "cloudbase-init-1.1.6"
    write_copy(folder, "1.1.6")
    (folder / "cloudbaseinit" / "init.py").unlink()
    found = choose(tmp_path, "1.1.7", _Pip(says=_OFFLINE))
    assert (found.version, found.modules) == (_INSTALLED, ())


def test_a_folder_that_python_cannot_be_told_is_not_used(tmp_path: Path) -> None:
    pip = _Pip(gives="1.1.4")
    found = choose(tmp_path / "a:b", "1.1.4", pip)
    assert (found.version, found.modules, pip.lines) == (_INSTALLED, (), [])
    assert found.reason.endswith("because its path contains :")


class Heard(io.StringIO):
    """Tells when a run says that it waits for another."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Event()

    def write(self, text: str) -> int:
        if "waiting for it to end" in text:
            self.waits.set()
        return super().write(text)


@dataclasses.dataclass
class _SlowPip(_Pip):
    """Tells when it has begun, and ends when it may."""

    begun: threading.Event = dataclasses.field(default_factory=threading.Event)
    may_end: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __call__(
        self, argv: Sequence[str | Path], *, environ: Mapping[str, str], cwd: Path | None = None, timeout: float
    ) -> Completed:
        done = super().__call__(argv, environ=environ, cwd=cwd, timeout=timeout)
        self.begun.set()
        assert self.may_end.wait(_WAIT_S)
        return done


@pytest.mark.parametrize(
    ("first", "asked"), [(_SlowPip(gives="1.1.4"), 0), (_SlowPip(says=_OFFLINE), 1)], ids=["ends well", "fails"]
)
def test_of_two_runs_at_once_one_downloads_and_the_other_sees_no_half_of_it(
    tmp_path: Path, first: _SlowPip, asked: int
) -> None:
    cache, heard, second = tmp_path / "imagegen", Heard(), _Pip(gives="1.1.4")
    with concurrent.futures.ThreadPoolExecutor(2) as runs:
        ahead = runs.submit(choose, tmp_path, "1.1.4", first)
        assert first.begun.wait(_WAIT_S)
        behind = runs.submit(choose, tmp_path, "1.1.4", second, heard)
        try:
            assert heard.waits.wait(_WAIT_S)
            assert [path.name for path in cache.glob("cloudbase-init*")] == ["cloudbase-init.lock"]
            assert second.lines == []
        finally:
            first.may_end.set()
        chosen = Choice("1.1.4", (cache / "cloudbase-init-1.1.4",))
        assert behind.result(_WAIT_S) == chosen
        assert ahead.result(_WAIT_S).version == (_INSTALLED if asked else "1.1.4")
    assert (len(first.lines), len(second.lines)) == (1, asked)
    assert {path.name for path in cache.iterdir()} == {"cloudbase-init-1.1.4", "cloudbase-init.lock"}


def test_a_run_that_waits_too_long_takes_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_LOCK_WAIT_S", 0.0)
    first, second = _SlowPip(gives="1.1.4"), _Pip(gives="1.1.4")
    with concurrent.futures.ThreadPoolExecutor(1) as runs:
        runs.submit(choose, tmp_path, "1.1.4", first)
        try:
            assert first.begun.wait(_WAIT_S)
            found = choose(tmp_path, "1.1.4", second)
        finally:
            first.may_end.set()
    assert (found.version, second.lines) == (_INSTALLED, [])
    assert "another run has held the lock" in found.reason


def test_without_the_package_a_rehearsal_cannot_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PACKAGE", "cloudbase-init-that-nobody-has")
    with pytest.raises(ToolError, match="which is not installed"):
        versions.installed_version()
