"""The output of a run: event lines for the host, text for people."""

from __future__ import annotations

import json

PREFIX = "imagegen: "
LONGEST_EVENT = 1000
LONGEST_REASON = 600


class Transcript:
    """The run's standard output, line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    def say(self, prose: str) -> None:
        self.lines.append(prose)

    def phase(self, name: str, status: str, *, resources: int, reason: str = "", **facts: int | bool) -> None:
        """`facts` are `changed`, `restart` and `ms`, if they are not zero."""
        counted: dict[str, int | bool] = {"changed": 0, "restart": False, "ms": 0, **facts}
        self._event(event="phase", phase=name, status=status, resources=resources, **counted, reason=reason)

    def artifact(self, name: str, status: str, size: int) -> None:
        self._event(event="artifact", name=name, status=status, size=size)

    def resource(self, phase: str, identity: str, status: str, ms: int, reason: str = "") -> None:
        self._event(event="resource", phase=phase, id=identity, status=status, ms=ms, reason=reason)

    def report(self, path: str, sha256: str) -> None:
        self._event(event="report", path=path, sha256=sha256)

    def _event(self, **fields: str | int | bool) -> None:
        if isinstance(reason := fields.get("reason"), str):
            fields["reason"] = reason[:LONGEST_REASON]
        while len(line := json.dumps(fields)) > LONGEST_EVENT and fields.get("reason"):
            fields["reason"] = str(fields["reason"])[:-1]
        self.lines.append(PREFIX + line)
