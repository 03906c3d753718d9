"""Plants one mistake at a time in a copy of the repository, and runs the tests: who notices it? `make mutants`."""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parent.parent
RESULTS: Final = HERE / "results.json"
_CUT_OFF: Final = "cut off"
_LIMIT_S: Final = 1800.0
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:logging", "--tb=no", "-rfE"),
    # The identities differ after every change of a file, and the tests of this folder compare the lists with the files.
    *("--deselect=tests/golden/test_golden.py::test_identities_are_as_agreed", "--ignore=tests/mutants"),
)
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)
# Python compares the time of a module, in seconds, with that of its compiled file.
_times = itertools.count(1_000_000_000)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A mistake: a text of a file, and the text in its place. `gone` names its successor, or why there is none."""

    id: str
    why: str
    tests: Sequence[str] = ()
    """Those that should notice first."""
    slow: Sequence[str] = ()
    """End-to-end tests that notice what no fast test does."""
    file: str = ""
    old: str = ""
    new: str = ""
    gone: str = ""


def read_mutants() -> list[Mutant]:
    """The mistakes of both lists."""
    rows = [row for name in ("mutants.yml", "data.yml") for row in YAML(typ="safe").load(HERE / name)]
    return [Mutant(**row) for row in rows]


def read_results() -> dict[str, str | None]:
    """The first test that found each mistake, by its id; None if no test did."""
    found: dict[str, str | None] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return found


class Copy:
    """A copy of the repository's tracked files, in which tests run."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "copy"
        # The git of whoever runs this.
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=REPOSITORY, text=True)  # noqa: S607 - see above
        for name in filter(None, listed.split("\0")):
            (self._root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, self._root / name)
        # A config may extend files of its repository only.
        (self._root / ".git").mkdir()
        (folder / "tmp").mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IMAGEGEN_", "PYTEST"))}
        own = {"PYTHONPATH": str(self._root), "PYTHONPYCACHEPREFIX": str(folder / "pyc"), "TMPDIR": str(folder / "tmp")}
        self._environment = {**kept, **own, "PYTHONDONTWRITEBYTECODE": ""}
        code, output = self._run([sys.executable, "-c", "import imagegen; print(imagegen.__file__)"])
        if code or not Path(output.strip()).is_relative_to(self._root):
            sys.exit(f"the tests would import another imagegen: {output}")

    def find(self, mutant: Mutant, tests: list[str], command: list[str]) -> str | None:
        """The first of these tests, or the command, that fails with the mistake and passes without it."""
        passed_over: list[str] = []
        while len(passed_over) < 5:
            code, output = self._plant(mutant, command or [*_PYTEST, *tests, *passed_over])
            if code in (0, None) or (code == 5 and not command):
                return _CUT_OFF if code is None else None
            found = None if command else _FAILED.search(output)
            control = [found[1]] if found else ["--collect-only", *tests]
            if self._run(command or [*_PYTEST, *control])[0] == 0:
                return found[1] if found else shlex.join(command) or f"every test: pytest ends with {code}"
            if not found:
                break
            passed_over.append(f"--{'deselect' if '::' in found[1] else 'ignore'}={found[1]}")
        sys.exit(f"what fails with {mutant.id} fails without it too: {passed_over or shlex.join(command)}")

    def _plant(self, mutant: Mutant, command: list[str]) -> tuple[int | None, str]:
        path = self._root / mutant.file
        text = path.read_text(encoding="utf-8")
        try:
            _write(path, text.replace(mutant.old, mutant.new))
            return self._run(command)
        finally:
            _write(path, text)

    def _run(self, command: list[str]) -> tuple[int | None, str]:
        """The exit code and the output. No code: it took too long."""
        with subprocess.Popen(  # noqa: S603 - no shell; the tests, or the command of whoever runs this
            command,
            cwd=self._root,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, ""
        return process.returncode, output.decode(errors="replace")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time := next(_times), time))


def search(copy: Copy, mutant: Mutant, asked: argparse.Namespace) -> str | None:
    """Who finds the mistake: the given tests or command; otherwise its own tests, all fast ones, or its slow ones."""
    if asked.tests or asked.command:
        return copy.find(mutant, asked.tests or [], shlex.split(asked.command or ""))
    fast = ["-m", "not e2e"]
    found = copy.find(mutant, [*fast, *mutant.tests], [])
    if found or asked.quick:
        return found
    found = copy.find(mutant, [*fast, "tests"], [])
    return found or (copy.find(mutant, [*mutant.slow], []) if mutant.slow else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", help="ids, or what they begin with (default: all)")
    parser.add_argument("--list", action="store_true", help="list the mistakes and what found them last")
    parser.add_argument("--quick", action="store_true", help="run only the tests that the list names")
    parser.add_argument("--missing", action="store_true", help="leave out mistakes that have a result")
    parser.add_argument("--tests", nargs="+", help="run these tests only, slow ones too; keep no result")
    parser.add_argument("--command", help="run this command in the copy instead; keep no result")
    parser.add_argument("--jobs", type=int, default=1, help="how many copies to use at the same time")
    asked = parser.parse_args()
    known, missed = read_results(), 0
    chosen = [one for one in read_mutants() if not asked.ids or one.id.startswith(tuple(asked.ids))]
    if not chosen:
        parser.error(f"no mistake has an id that begins with {' or '.join(asked.ids)}; --list shows them")
    if asked.list:
        print(*(f"{one.id}  {one.file or one.gone}: {one.why} [{known.get(one.id)}]" for one in chosen), sep="\n")
        return
    chosen = [one for one in chosen if not one.gone and not (asked.missing and one.id in known)]
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool,
    ):
        copies: queue.Queue[Copy] = queue.Queue()
        for number in range(asked.jobs):
            copies.put(Copy(Path(folder, str(number))))

        def try_one(mutant: Mutant) -> str | None:
            copy = copies.get()
            try:
                return search(copy, mutant, asked)
            finally:
                copies.put(copy)

        for mutant, found in zip(chosen, pool.map(try_one, chosen), strict=True):
            missed += found in (None, _CUT_OFF)
            print(f"{mutant.id}: {'NOT FOUND' if found is None else found}", flush=True)
            if found != _CUT_OFF and not (asked.tests or asked.command or (asked.quick and found is None)):
                # Another run may have written to it meanwhile.
                RESULTS.write_text(
                    json.dumps(dict(sorted({**read_results(), mutant.id: found}.items())), indent=1) + "\n"
                )
    print(f"{len(chosen) - missed} of {len(chosen)} found")


if __name__ == "__main__":
    main()
