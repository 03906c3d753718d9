"""What libarchive's bsdtar, which is tar.exe of Windows, leaves of an archive on the disk is what the plan lists, or
imagegen refuses the archive. No well-formed archive is refused, whoever wrote it.

IMAGEGEN_ARCHIVE_MUTANTS is the number of archives that are changed at random: `make archive-mutants` has more of them.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from imagegen import pipeline
from imagegen.inspect.archive import find_type
from imagegen.rehearsal.artifacts import make_artifacts
from tests.archives import tars, zips
from tests.archives.judge import Judge
from tests.archives.mutants import change_times_and_owners, mutate
from tests.conftest import load_today
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.e2e

REPOSITORY: Final = Path(__file__).parents[2]
CONFIGS: Final = (
    REPOSITORY / "configs/windows-2022-containerd.yaml",
    REPOSITORY / "tests/data/docker.yaml",
    *(REPOSITORY / "tests/data/networks" / f"{name}.yaml" for name in ("calico", "ovn-kubernetes", "wincni")),
)
WELL_FORMED: Final = {
    **{f"tar: {name}": data for name, data in tars.well_formed().items()},
    **{f"zip: {name}": data for name, data in zips.well_formed().items()},
}
HOSTILE: Final = {
    **{f"tar: {name}": one.data for name, one in tars.hostile().items()},
    **{f"zip: {name}": one.data for name, one in zips.hostile().items()},
}
STRIPS: Final = (0, 1, 2)
MUTANTS: Final = int(os.environ.get("IMAGEGEN_ARCHIVE_MUTANTS", "300"))
_DEADLINE_S: Final = HANG_S


@pytest.fixture(scope="module")
def bsdtar() -> str:
    found = shutil.which("bsdtar")
    if not found and not os.environ.get("CI"):
        pytest.skip("this test needs bsdtar: install libarchive-tools")
    assert found, "this test needs bsdtar: install libarchive-tools"
    return found


@pytest.fixture
def judge(bsdtar: str, tmp_path: Path) -> Judge:
    return Judge(bsdtar, tmp_path)


def _run(argv: Sequence[str | Path], folder: Path) -> None:
    done = subprocess.run(  # noqa: S603  # programs of this system
        argv, cwd=folder, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    assert done.returncode == 0, f"{argv[0]}: {done.stderr}"


def test_well_formed_archives_are_read_as_bsdtar_reads_them(judge: Judge) -> None:
    assert [name for name, data in WELL_FORMED.items() for strip in STRIPS if judge.judge(data, strip) is None] == []


def test_a_leading_dot_is_a_folder_that_is_stripped_too(judge: Judge) -> None:
    dotted, plain = WELL_FORMED["tar: tar -C folder ."], WELL_FORMED["tar: gnu"]
    for strip in STRIPS:
        assert judge.judge(dotted, strip) == judge.judge(plain, strip)


def test_what_two_readers_read_in_two_ways_is_refused(judge: Judge) -> None:
    assert [name for name, data in HOSTILE.items() for strip in STRIPS if judge.judge(data, strip) is not None] == []


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release, with a long name and an empty folder."""
    folder = tmp_path_factory.mktemp("tree")
    for name, data in {"bin/a.exe": b"MZ" * 5000, "bin/b.dll": b"", f"{'long/' * 30}LICENSE": b"1"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "empty").mkdir()
    return folder


def test_what_other_programs_write_is_read(judge: Judge, bsdtar: str, tree: Path, tmp_path: Path) -> None:
    out = tmp_path / "written"
    out.mkdir()
    for form in ("ustar", "gnu", "posix"):
        _run(
            ["tar", f"--format={form}", "-czf", out / f"gnu-{form}.tgz", *(path.name for path in tree.iterdir())], tree
        )
    _run(["tar", "-czf", out / "gnu-dotted.tgz", "-C", tree, "."], tree)
    for form in ("ustar", "pax", "gnutar", "zip"):
        _run([bsdtar, "--format", form, "-cf", out / f"bsdtar-{form}", "bin", "empty", "long"], tree)
    _run([bsdtar, "-czf", out / "bsdtar.tgz", "."], tree)
    _run(["go", "run", REPOSITORY / "tests/archives/go/main.go", tree, out], tmp_path)
    if shutil.which("zip"):
        _run(["zip", "-qr", out / "info.zip", "."], tree)
        _run(["sh", "-c", f"zip -qr - bin | cat > '{out}/piped.zip'"], tree)
    names = sorted(path.name for path in out.iterdir())
    assert len(names) >= 14, names
    judged = {name: judge.judge((out / name).read_bytes(), 1) for name in names}
    assert [name for name, listed in judged.items() if listed is None] == []
    assert all(any(one["path"] == "a.exe" for one in listed or ()) for listed in judged.values())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_the_catalogues_archives_are_read(judge: Judge, config: Path) -> None:
    """In the layouts of the published ones, as all rehearsals make them."""
    loaded = load_today(config)
    prepared = [pipeline.prepare_target(loaded, target) for target in loaded.config.targets.named()]
    archives = {url: data for one in prepared for url, data in make_artifacts(one.steps).items()}
    found = {url for url, data in archives.items() if find_type(data[:1024]) in ("zip", "tar.gz", "tar")}
    assert found
    assert [url for url in sorted(found) for strip in (0, 1) if judge.judge(archives[url], strip) is None] == []


def test_changed_archives_are_read_as_bsdtar_reads_them_or_refused(judge: Judge) -> None:
    names, read = sorted(WELL_FORMED), 0
    for seed in range(MUTANTS):
        choose = random.Random(seed)  # noqa: S311 - no secret
        name = choose.choice(names)
        changed, strip = mutate(WELL_FORMED[name], choose), choose.choice((0, 1, 1, 2))
        try:
            read += judge.judge(changed, strip) is not None
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {name}, without {strip} folders: {error}") from error
    # Who refuses everything is no judge: one in eight is still an archive.
    assert read > MUTANTS // 16


def test_an_archive_with_other_times_and_owners_is_not_refused(judge: Judge) -> None:
    listed = {name: judge.judge(data, 1) for name, data in WELL_FORMED.items()}
    for seed in range(MUTANTS // 5):
        choose = random.Random(seed)  # noqa: S311 - no secret
        name = choose.choice(sorted(WELL_FORMED))
        assert judge.judge(change_times_and_owners(WELL_FORMED[name], choose), 1) == listed[name]
