"""The paths of the files in one build's folder."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from imagegen.build.folder_lock import locked
from imagegen.errors import RefusedError


@dataclasses.dataclass(frozen=True)
class BuildFolder:
    """The folder of one build: out/<name>/<id>/."""

    root: Path

    @property
    def tree(self) -> Path:
        """What Packer reads."""
        return self.root / "tree"

    @property
    def log(self) -> Path:
        """The log of Packer's output."""
        return self.root / "packer.log"

    @property
    def journal(self) -> Path:
        """The journals of the runs of this config."""
        return self.root.parent / "journal"

    @property
    def report(self) -> Path:
        """The guest's report."""
        return self.root / "report.json"

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder: another build of the image would delete this one's report and log."""
        with locked(self.root / ".lock", wait_s=0, waiting=self._refuse_second_run):
            yield

    def _refuse_second_run(self) -> None:
        raise RefusedError(
            f"another run is using {self.root}: it builds or publishes the same image",
            hint="wait until it ends, or use another folder with --out",
        )
