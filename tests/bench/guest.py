"""The figures of what the machine of a build receives: each with its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.powershell.repository import ROOT, RULES, script, script_paths


def guest_figures(manifest: dict[str, Any], folder: Path) -> list[str]:
    """Of a rehearsed build without updates, whose tree is below the folder."""
    (bundle,) = folder.glob("rehearsal/*/*/*/tree/guest/bundle.zip")
    restarts = (bundle.parents[1] / "build.pkr.hcl").read_text("utf-8").count('provisioner "windows-restart"')
    winrm = manifest["notes"]["rehearsal"]["winrm"]
    lines = sum((ROOT / path).read_bytes().count(b"\n") for path in script_paths())
    findings = sum(len(rule(script(path))) for path in script_paths() for rule in RULES)
    return [
        f"WinRM messages with a login: {winrm['messages']} (promised: at most 150)",
        f"sent over WinRM: {winrm['bytes_in'] / 1000:.0f} kB (promised: at most 400 kB)",
        f"restarts: {restarts} (promised: 1)",
        f"bundle: {bundle.stat().st_size / 1000:.1f} kB (promised: at most 100 kB)",
        f"PowerShell: {lines} lines (promised: below 3000)",
        f"findings of the judge of scripts: {findings} (promised: 0)",
    ]
