"""The named pipe on which Packer waits for the verdict on the machine's report, before it seals the machine."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from imagegen.base.errors import ToolError


class VerdictPipe(contextlib.AbstractContextManager["VerdictPipe"]):
    """The pipe of one build. Without an answer, Packer makes no image: it waits, and then fails.

    `judge` returns why the report is rejected, or None.
    """

    def __init__(self, file: Path, judge: Callable[[], str | None]) -> None:
        self._file = file
        self._judge = judge
        self.rejection: str | None = None
        """Why the report was rejected; None if nobody has asked yet, or if it was accepted."""
        file.unlink(missing_ok=True)
        try:
            os.mkfifo(file, 0o600)
        except OSError as fault:
            raise ToolError(
                f"the named pipe {file} cannot be created: {fault.strerror}",
                hint="use a folder on a file system that supports named pipes",
            ) from fault

    @property
    def variables(self) -> dict[str, str]:
        """The variable with which Packer waits."""
        return {"verdict_pipe": str(self._file)}

    def answer(self) -> None:
        """Judge the report if Packer is waiting for the verdict."""
        try:
            pipe = os.open(self._file, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            # Nobody is reading.
            return
        try:
            self.rejection = self._judge()
            # The reader may have its answer already, and be closing the pipe.
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, b"rejected\n" if self.rejection else b"accepted\n")
        finally:
            os.close(pipe)

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)
