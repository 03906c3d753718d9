"""The wheel holds all that a checkout renders from: unpacked elsewhere, it makes the same tree."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hatchling.build
import pytest

from imagegen import pipeline
from imagegen.base import contents
from imagegen.fetch.lock import lock_bytes
from imagegen.providers.registry import PROVIDERS
from tests.deadlines import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]
SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as a wheel brings it, and nothing of the checkout."""
    into = tmp_path_factory.mktemp("wheel")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(REPOSITORY)
        wheel = into / hatchling.build.build_wheel(str(into))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into / "site")
    return into / "site"


def test_wheel_holds_every_content_file(unpacked: Path) -> None:
    data = unpacked / "imagegen" / "_data"
    for inside, outside in ((data / "packer", contents.PACKER), (data / "ansible-win", contents.ROLES.parent)):
        assert contents.read_folder(inside) == contents.read_folder(outside)
    package = contents.CATALOG.parent
    for room in ("catalog", "rules", *(f"providers/{name}" for name in PROVIDERS)):
        rows = contents.read_folder(package / room, "**/*.json")
        assert rows
        assert contents.read_folder(unpacked / "imagegen" / room, "**/*.json") == rows
    for room in ("samples", *(f"providers/{name}/samples" for name in PROVIDERS)):
        templates = contents.read_folder(package / room, "**/*.j2")
        assert templates
        assert contents.read_folder(unpacked / "imagegen" / room, "**/*.j2") == templates


def test_wheel_holds_the_whole_package_and_nothing_else(unpacked: Path) -> None:
    package = contents.read_folder(REPOSITORY / "imagegen", "**/*.py")
    inside = contents.read_folder(unpacked / "imagegen", "**/*.py")
    assert {path: data for path, data in inside.items() if not path.startswith("_data/")} == package
    folders = sorted(path.name.partition("-")[0] for path in unpacked.iterdir())
    assert folders == ["imagegen", "imagegen"]


@pytest.mark.parametrize("target", ["aws", "azure"])
def test_wheel_renders_the_checkouts_tree(
    target: str, unpacked: Path, tmp_path: Path, decide: Callable[..., Any]
) -> None:
    decided = decide(SHIPPED, target)
    lock = tmp_path / "lock.json"
    lock.write_bytes(lock_bytes(decided.lock))
    words = ["render", str(SHIPPED), "--target", target, "--lock", str(lock), "--out", str(tmp_path / "out")]
    environ = {**os.environ, "PYTHONPATH": str(unpacked)}
    where = "import imagegen; print(imagegen.__file__)"
    imported = _python(["-c", where], environ, tmp_path)
    assert Path(imported).is_relative_to(unpacked)
    tree = Path(_python(["-m", "imagegen", *words], environ, tmp_path))
    assert tree.is_relative_to(tmp_path / "out")
    assert contents.read_folder(tree) == pipeline.render_tree(decided.decision)


def _python(arguments: list[str], environ: dict[str, str], folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 - no shell; the words are this test's own
        [sys.executable, *arguments],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
