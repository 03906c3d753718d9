from __future__ import annotations

import json
import re
from typing import Any, get_args

import pytest

from imagegen.build.events import (
    ArtifactEvent,
    BrokenEvent,
    GuestEvent,
    PhaseEvent,
    ReportEvent,
    ResourceEvent,
    parse_event,
)

_PHASE = {
    "event": "phase",
    "phase": "phase-1",
    "status": "finished",
    "resources": 9,
    "changed": 7,
    "restart": True,
    "ms": 31200,
    "reason": "",
}
_RESOURCE = {
    "event": "resource",
    "phase": "phase-1",
    "id": "system/feature:Containers",
    "status": "changed",
    "ms": 1200,
    "reason": "was Available",
}


def line(data: object) -> str:
    return "imagegen: " + json.dumps(data, separators=(",", ":"))


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (line(_PHASE), PhaseEvent("phase-1", "finished", 9, 7, True, 31200, "")),
        (line(_RESOURCE), ResourceEvent("phase-1", "system/feature:Containers", "changed", 1200, "was Available")),
        (line({**_RESOURCE, "status": "drifted"}).replace("was", "w\\u00e4r"),
         ResourceEvent("phase-1", "system/feature:Containers", "drifted", 1200, "wär Available")),
        (line({"event": "artifact", "name": "cni", "status": "ready", "size": 5}), ArtifactEvent("cni", "ready", 5)),
        (line({"event": "report", "path": "C:\\r.json", "sha256": "00"}), ReportEvent("C:\\r.json", "00")),
    ],
)  # fmt: skip
def test_an_event_is_read(text: str, event: GuestEvent) -> None:
    assert parse_event(text) == event


@pytest.mark.parametrize("text", ["", "Installing imagegen: {}", "imagegen {}", "imagegen"])
def test_prose_is_no_event(text: str) -> None:
    assert parse_event(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("imagegen:", "invalid JSON"),
        ("imagegen: {", "invalid JSON"),
        (line(_PHASE) + " and more", "invalid JSON"),
        ("imagegen: []", "not a JSON object"),
        (line({"event": "fase"}), "unknown event: fase"),
        (line({"event": ["phase"]}), "unknown event"),
        (line({**_PHASE, "extra": 1}), "its fields must be"),
        (line({k: v for k, v in _PHASE.items() if k != "reason"}), "its fields must be"),
        (line({**_PHASE, "status": "ok"}), "status must be one of started, finished, failed, not 'ok'"),
        (line({**_PHASE, "restart": 1}), "restart must be of type bool, not 1"),
        (line({**_PHASE, "changed": True}), "changed must be of type int, not True"),
        (line({**_PHASE, "ms": -1}), "ms must be of type int, not -1"),
        (line({**_PHASE, "ms": 1.5}), "ms must be of type int, not 1.5"),
        (line({**_RESOURCE, "reason": None}), "reason must be of type str, not None"),
        (line({**_RESOURCE, "status": ["ok"]}), "drifted, skipped, not ['ok']"),
        (line({**_RESOURCE, "reason": "x" * 1000}), "at most 1000"),
        (line(_RESOURCE).replace("was", "wär"), "ASCII"),
    ],
)
def test_a_line_that_only_claims_to_be_an_event_is_broken(text: str, why: str) -> None:
    event = parse_event(text)
    assert isinstance(event, BrokenEvent)
    assert why in event.why


def test_the_longest_event_that_the_contract_allows_is_read() -> None:
    data: dict[str, Any] = {**_RESOURCE, "reason": ""}
    room = 1000 - len(line(data).removeprefix("imagegen: "))
    assert isinstance(parse_event(line({**data, "reason": "x" * room})), ResourceEvent)
    assert isinstance(parse_event(line({**data, "reason": "x" * (room + 1)})), BrokenEvent)


def test_a_resource_knows_its_step() -> None:
    assert ResourceEvent("p", "containerd/file:C:\\a/b", "ok", 0, "").step == "containerd"


@pytest.mark.parametrize("event", get_args(GuestEvent))
def test_an_event_is_described_in_words(event: type) -> None:
    """A name of the code in a sentence is the trace of a search that replaced too much."""
    assert re.fullmatch(r"[A-Z][a-zA-Z ,:]+\.", event.__doc__ or "")
