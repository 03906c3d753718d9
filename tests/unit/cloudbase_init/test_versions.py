"""Which cloudbase-init a rehearsal runs: pip is a stand-in here, and writes what pip writes."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen.build.process import Completed
from imagegen.console import Console
from imagegen.errors import ToolError
from imagegen.rehearsal.cloudbase_init import versions
from imagegen.rehearsal.cloudbase_init.versions import Choice, choose_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INSTALLED = "1.1.8"
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
    (folder / "cloudbaseinit").mkdir(parents=True)
    (folder / "cloudbaseinit" / "__init__.py").touch()
    if complete:
        metadata = folder / f"cloudbase_init-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cloudbase-init\nVersion: {version}\n")


def choose(tmp_path: Path, wanted: str, pip: _Pip) -> Choice:
    console = Console(io.StringIO(), plain=True)
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
    assert line[1:4] == ["-m", "pip", "install"]
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


def test_a_damaged_copy_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "imagegen" / "cloudbase-init-1.1.4"
    write_copy(folder, "1.1.4", complete=False)
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


def test_without_the_package_a_rehearsal_cannot_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "PACKAGE", "cloudbase-init-that-nobody-has")
    with pytest.raises(ToolError, match="which is not installed"):
        versions.installed_version()
