"""The folder of one build: its paths, and its lock."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from imagegen.base.errors import RefusedError
from imagegen.base.locks import locked


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

    def report(self, run_id: str) -> Path:
        """The report of the machine of a run. The file has the run's name, so that it is taken for no other image's."""
        return self.root / "reports" / f"{run_id}.json"

    @property
    def verdict_pipe(self) -> Path:
        """The named pipe on which Packer waits for the verdict on the report."""
        return self.root / "verdict.pipe"

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
