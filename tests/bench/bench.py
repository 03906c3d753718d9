"""`make bench`: the ratios that are promised, each measured in one run, interleaved, best of several."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.guest import guest_figures
from tests.bench.locking import locking_figures
from tests.bench.signatures import signature_figures

ROUNDS = 15
CONFIG = "configs/windows-2022-containerd.yaml"
MAXIMAL = "tests/bench/maximal.yaml"
# What only one cloud allows.
MORE = {"aws": [], "azure": ["--set", "gmsa={}"]}
CLI = str(Path(sys.executable).with_name("imagegen"))


def best(commands: dict[str, list[str]]) -> dict[str, float]:
    """Seconds of the best run of each; one of each in turn, so that a busy moment meets all alike."""
    seconds = dict.fromkeys(commands, float("inf"))
    for _ in range(ROUNDS):
        for name, argv in commands.items():
            began = time.perf_counter()
            subprocess.run(argv, check=True, capture_output=True)  # noqa: S603 - our own commands
            seconds[name] = min(seconds[name], time.perf_counter() - began)
    return seconds


def start_up() -> None:
    seconds = best(
        {
            "click": [sys.executable, "-c", "import click"],
            "help": [CLI, "--help"],
            "imports": [sys.executable, "-c", "import click, pydantic, jinja2, ruamel.yaml"],
            "validate": [CLI, "validate", CONFIG],
            "tools": [CLI, "tools"],
        }
    )
    ratio("imagegen --help", seconds["help"], "import click", seconds["click"], 2.0)
    ratio(
        "imagegen validate", seconds["validate"], "import click, pydantic, jinja2, ruamel.yaml", seconds["imports"], 2.0
    )
    print(f"imagegen tools, second call: {seconds['tools']:.2f} s (promised: below 2 s)")


def ratio(name: str, seconds: float, other: str, other_seconds: float, promised: float) -> None:
    print(f"{name}: {seconds * 1000:.0f} ms, {seconds / other_seconds:.2f} x `{other}` (promised: {promised} x)")


def rehearsals() -> None:
    with tempfile.TemporaryDirectory() as folder:
        alone = {target: rehearsal([build(CONFIG, target, f"{folder}/{target}")]) for target in ("aws", "azure")}
        for target, (seconds, manifests) in alone.items():
            winrm = ", ".join(f"{key} {value}" for key, value in manifests[0]["notes"]["rehearsal"]["winrm"].items())
            print(f"rehearsal {target}: {seconds:.1f} s (promised: below 30 s); winrm {winrm}")
        print(*guest_figures(alone["azure"][1][0], Path(folder, "azure")), sep="\n")
        seconds, _ = rehearsal([build(CONFIG, target, folder) for target in alone])
        print(f"rehearsals of both at once: {seconds:.1f} s (promised: below 45 s)")


def maximal() -> None:
    """A config with everything that one image can have at once."""
    for target, more in MORE.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds, _ = rehearsal([build(MAXIMAL, target, folder) + more])
            print(f"rehearsal of a maximal config, {target}: {seconds:.1f} s (promised: below 90 s)")
            (lock,) = Path(folder).glob("rehearsal/*/lock.json")
            # Its label says that the artifacts are stand-ins, and a real tree may not have them.
            lock.write_text(json.dumps({**json.loads(lock.read_text()), "labels": {}}))
            render = [CLI, "render", MAXIMAL, "--target", target, *more, "--lock", str(lock), "--out", folder]
            print(
                f"its plan and tree, with the start: {best({'render': render})['render']:.2f} s (promised: below 0.5 s)"
            )


def build(config: str, target: str, folder: str) -> list[str]:
    return [CLI, "build", config, "--target", target, "--rehearse", "--out", folder, "--format", "json", "--quiet"]


def rehearsal(commands: list[list[str]]) -> tuple[float, list[dict[str, Any]]]:
    began = time.perf_counter()
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE)  # noqa: S603 - our own commands
        for command in commands
    ]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"a rehearsal failed: {commands}")
    return time.perf_counter() - began, [json.loads(output) for output in outputs]


if __name__ == "__main__":
    start_up()
    for figure in locking_figures():
        print(figure)
    print(*signature_figures(), sep="\n")
    rehearsals()
    maximal()
