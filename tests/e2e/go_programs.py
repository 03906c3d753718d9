"""Programs in Go that read or write files as real programs do. They are built once, with the modules of Go's proxy.

A program lies in a folder of tests/consumers: as a module of its own, or as a package to put into another module, whose
internal packages it needs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imagegen.base.files import replace_folder
from imagegen.base.locks import locked
from imagegen.build.tools import cache_folder
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SOURCES: Final = REPOSITORY / "tests" / "consumers"
# Each takes one or two minutes on two cores with an empty Go cache; other builds may run beside it.
_BUILD_TIMEOUT_S: Final = 900
_RUN_TIMEOUT_S: Final = 60
_TYPE = re.compile(r"(?ms)^type \w+ struct \{\n.*?^\}\n")
_BUILD_TAG = re.compile(r"(?m)^//go:build windows\n")


@dataclasses.dataclass(frozen=True)
class Program:
    """A program of tests/consumers."""

    folder: str
    files: tuple[str, ...] = ()
    """Those of the folder that this version needs; all of them if there are none here."""
    module: str = ""
    """The module to build it in, with its version. Empty if the folder has a module."""
    place: str = ""
    """The folder of that module."""
    requires: tuple[str, ...] = ()
    """Modules that are newer than that module asks for."""
    requirements: str = "go"
    """The name of the files of that module that list its requirements and their sums, without `.mod` and `.sum`."""

    def run(self, request: object) -> str:
        """What the program prints for a request, which it gets as JSON."""
        done = subprocess.run(  # noqa: S603  # the program was built here
            [self._built()],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_RUN_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _built(self) -> Path:
        contents = {file.name: file.read_text() for file in sorted((SOURCES / self.folder).iterdir())}
        chosen = {name: contents[name] for name in self.files or contents}
        key = hashlib.sha256(json.dumps([chosen, dataclasses.astuple(self)]).encode()).hexdigest()[:16]
        cache = cache_folder(os.environ) / "test-programs"
        binary = cache / f"{self.folder}-{key}" / "program"
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f"{self.folder}-{key}.lock", wait_s=_BUILD_TIMEOUT_S, waiting=lambda: None):
            if not binary.is_file():
                self._build(chosen, binary.parent)
        return binary

    def _build(self, sources: Mapping[str, str], into: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".building-", dir=into.parent) as scratch:
            root = Path(scratch, "module")
            package = root / self.place
            if self.module:
                _copy(_download(self.module, Path(scratch)), root)
                for kind in ("mod", "sum"):
                    (root / f"{self.requirements}.{kind}").rename(root / f"go.{kind}")
                for module in self.requires:
                    _go(["mod", "edit", f"-require={module}"], root)
            package.mkdir(parents=True, exist_ok=True)
            for name, text in sources.items():
                (package / name).write_text(text)
            if "sources.json" in sources:
                _copy_sources(json.loads(sources["sources.json"])["files"], root)
            out = Path(scratch, "out")
            # A module of our own is as it is committed; another one lacks the sums of what `requires` adds.
            mode = "-mod=mod" if self.module else "-mod=readonly"
            _go(["build", mode, "-o", str(out / "program"), f"./{self.place}"], root)
            replace_folder(out, into, Path(scratch, "old"))


def _copy_sources(files: Sequence[Mapping[str, str | list[str] | None]], root: Path) -> None:
    modules: dict[str, Path] = {}
    for file in files:
        module, path, to, imports = (file[key] for key in ("module", "path", "to", "imports"))
        assert isinstance(module, str)
        if module not in modules:
            modules[module] = _download(module, root)
        text = _BUILD_TAG.sub("", (modules[module] / str(path)).read_text())
        target = root / str(to)
        target.parent.mkdir(exist_ok=True)
        package = target.parent.name
        if imports is not None:
            lines = "".join(f'import "{name}"\n' for name in imports)
            text = f"package {package}\n\n{lines}\n" + "\n".join(_TYPE.findall(text))
        elif target.suffix == ".go":
            text = re.sub(r"(?m)^package \w+$", f"package {package}", text, count=1)
        target.write_text(text)


def _download(module: str, folder: Path) -> Path:
    """The module's folder in Go's cache. Inside a module its version and its sum are those of go.mod and go.sum."""
    return Path(json.loads(_go(["mod", "download", "-json", module], folder))["Dir"])


def _copy(source: Path, to: Path) -> None:
    """Go's cache is read-only."""
    shutil.copytree(source, to, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(to):
        Path(folder).chmod(stat.S_IRWXU)


def _go(arguments: Sequence[str], folder: Path) -> str:
    go = shutil.which("go")
    assert go is not None, "these tests need Go: https://go.dev/doc/install"
    environment = {**os.environ, "GOWORK": "off"}
    done = subprocess.run(  # noqa: S603  # Go itself
        [go, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"go {' '.join(arguments)}: {done.stderr[-3000:]}"
    return done.stdout
