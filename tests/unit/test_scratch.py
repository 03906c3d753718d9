"""The temporary folder of a rehearsal: gone at the end, and a killed run's gone with the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.scratch import scratch_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "disk").mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_runs_folder_is_removed_and_no_living_ones(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".held").touch()
    parent = tmp_path / "tmp"
    killed = parent / "imagegen-rehearsal-killed"
    starting = parent / "imagegen-rehearsal-starting"
    others = parent / "somebody-else"
    for folder in (killed, starting, others):
        folder.mkdir(parents=True)
    for folder in (killed, others):
        (folder / ".held").touch()
    (killed / "disk").mkdir()
    (parent / "imagegen-rehearsal-link").symlink_to(elsewhere)
    with scratch_folder(parent) as living, scratch_folder(parent) as second:
        assert {living, second, starting, others} < set(parent.iterdir())
        assert not killed.exists()
        assert (elsewhere / ".held").exists()
