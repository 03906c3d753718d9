"""How much memory builds may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.build.go_build import spare_memory_gb

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("meminfo", "limit", "spare"),
    [
        ("MemTotal:       24000000 kB\nMemAvailable:   10000000 kB\n", None, 10.24),
        ("MemAvailable:   10000000 kB\n", "max\n", 10.24),
        ("MemAvailable:   10000000 kB\n", "4000000000\n", 4.0),
        ("MemAvailable:    1000000 kB\n", "4000000000\n", 1.024),
        (None, None, None),
    ],
)
def test_a_container_has_what_it_is_allowed(
    tmp_path: Path, meminfo: str | None, limit: str | None, spare: float | None
) -> None:
    for name, text in {"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": limit}.items():
        if text is not None:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).write_text(text)
    assert spare_memory_gb(tmp_path) == spare
