from __future__ import annotations

from pathlib import Path

from imagegen.build.workspace import BuildFolder


def test_the_parts_of_a_build_folder() -> None:
    folder = BuildFolder(Path("out/x/1"))
    names = [path.name for path in (folder.tree, folder.log, folder.report)]
    assert names == ["tree", "packer.log", "report.json"]
