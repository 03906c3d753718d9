"""Passes on a process's output line by line, with a deadline, while the process runs and while it cleans up."""

import codecs
import collections
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

_READ_SIZE: Final = 65536
_WATCH_S: Final = 0.2


class Pump:
    """Reads outputs, each on a thread, so that the caller's thread can wait with a deadline and be interrupted."""

    def __init__(
        self, outputs: Mapping[int, Callable[[str], None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._lines: collections.deque[tuple[Callable[[str], None], str]] = collections.deque()
        self._changed = threading.Condition()
        self._open = len(outputs)
        self._failed = False
        self._stopped, self._stop = os.pipe()
        self.last_output_at = clock()
        """When the process last printed something."""
        self._threads = [threading.Thread(target=self._read, args=item) for item in outputs.items()]
        for thread in self._threads:
            thread.start()

    def until_end(self, deadline: Callable[[], float], watch: Callable[[], None] | None = None) -> bool:
        """Pass on lines until the end of the output. Returns False if the deadline comes first."""
        while True:
            if watch is not None:
                watch()
            with self._changed:
                left = deadline() - self._clock()
                if left <= 0:
                    return False
                # The deadline may change meanwhile.
                if not self._changed.wait_for(lambda: self._lines or not self._open, timeout=min(left, _WATCH_S)):
                    continue
                if not self._lines:
                    return True
                on_line, line = self._lines.popleft()
            self._pass_on(on_line, line)

    def close(self) -> None:
        """Stop reading: a child process that left the program's group may hold the output open for ever."""
        os.write(self._stop, b"-")
        for thread in self._threads:
            thread.join()
        os.close(self._stopped)
        os.close(self._stop)

    def _pass_on(self, on_line: Callable[[str], None], line: str) -> None:
        if self._failed:
            return
        try:
            on_line(line)
        except Exception:
            # Raised only once, which ends the program. Raised again, it would cut the program's clean-up short.
            self._failed = True
            raise

    def _read(self, output: int, on_line: Callable[[str], None]) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        data = b"-"
        while data:
            ready, _, _ = select.select([output, self._stopped], [], [])
            data = os.read(output, _READ_SIZE) if output in ready else b""
            *lines, rest = (rest + decoder.decode(data, final=not data)).split("\n")
            if not data and rest:
                lines.append(rest)
            with self._changed:
                self.last_output_at = self._clock()
                self._lines.extend((on_line, line.removesuffix("\r")) for line in lines)
                self._open -= not data
                self._changed.notify()
