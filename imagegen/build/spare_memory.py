"""Measures the memory that builds may use: what is available, within a container's limit. Reads /proc and /sys."""

import re
from pathlib import Path

_AVAILABLE = re.compile(r"(?m)^MemAvailable:\s+(\d+) kB$")


def spare_memory_gb(root: Path = Path("/")) -> float | None:
    """Gigabytes; None if this system does not tell."""
    available = _AVAILABLE.search(_read(root / "proc/meminfo"))
    if available is None:
        return None
    allowed = _read(root / "sys/fs/cgroup/memory.max").strip()
    spare = int(available[1]) * 1024
    return (min(spare, int(allowed)) if allowed.isdecimal() else spare) / 1e9


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        # Other systems, older kernels and the root control group do not have this file.
        return ""
