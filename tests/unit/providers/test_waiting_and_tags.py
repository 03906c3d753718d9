"""Waiting grows apart and ends; tags decide whose image it is."""

from __future__ import annotations

import pytest

from imagegen.providers.tags import is_same_image
from imagegen.providers.time_limits import FAILING_LIMIT_S, PAUSES_S, Clock, wait_for


@pytest.mark.parametrize(
    ("found_at", "limit_s", "pauses"),
    [
        (0, 100.0, []),
        (2, 100.0, [1.0, 2.0]),
        (9, 1000.0, [*PAUSES_S, 30.0, 30.0, 30.0]),
        (None, 7.0, [1.0, 2.0, 4.0]),
        (None, 0.0, []),
    ],
)
def test_wait_for(found_at: int | None, limit_s: float, pauses: list[float]) -> None:
    waited: list[float] = []
    looks = 0

    def look() -> str | None:
        nonlocal looks
        looks += 1
        return "it" if found_at is not None and looks > found_at else None

    found = wait_for(look, limit_s=limit_s, clock=Clock(now=lambda: sum(waited), pause=waited.append))
    assert found == (None if found_at is None else "it")
    assert waited == pauses
    assert looks == len(pauses) + 1


def _ends_after(fails: str, limit_s: float) -> tuple[float, str]:
    """When and how a wait ends; `fails` has a word for each look, of which the last one repeats."""
    now = 0.0
    words = fails.split()

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    def look() -> str | None:
        word = words.pop(0) if len(words) > 1 else words[0]
        if word == "passing":
            raise TimeoutError
        if word == "lasting":
            raise PermissionError
        return "it" if word == "it" else None

    clock = Clock(now=lambda: now, pause=pause)
    try:
        found = wait_for(look, limit_s=limit_s, clock=clock, is_transient=lambda error: isinstance(error, TimeoutError))
    except OSError as error:
        return now, " ".join([type(error).__name__, *getattr(error, "__notes__", [])])
    return now, str(found)


@pytest.mark.parametrize(
    ("fails", "limit_s", "ends"),
    [
        ("passing passing passing passing passing passing it", 100.0, (63.0, "it")),
        ("lasting", 100.0, (0.0, "PermissionError")),
        ("passing lasting", 100.0, (1.0, "PermissionError")),
        ("passing", 7.0, (7.0, "TimeoutError")),
        ("later passing later", 7.0, (7.0, "None")),
        ("passing", 2 * FAILING_LIMIT_S, (1803.0, "TimeoutError every attempt failed for 30 minutes")),
        (" ".join(["passing"] * 40 + ["later"] + ["passing"] * 40 + ["it"]), 2 * FAILING_LIMIT_S, (2313.0, "it")),
    ],
)
def test_waiting_survives_errors_that_pass(fails: str, limit_s: float, ends: tuple[float, str]) -> None:
    assert _ends_after(fails, limit_s) == ends


@pytest.mark.parametrize(
    ("tags", "labels", "same"),
    [
        ({"imagegen_image_id": "a"}, {}, True),
        ({"imagegen_image_id": "a", "other": "x"}, {}, True),
        ({"imagegen_image_id": "b"}, {}, False),
        ({}, {}, False),
        ({"imagegen_image_id": "a", "imagegen_label_x": "1"}, {}, False),
        ({"imagegen_image_id": "a"}, {"x": "1"}, False),
        ({"imagegen_image_id": "a", "imagegen_label_x": "1"}, {"x": "1"}, True),
        ({"imagegen_image_id": "a", "imagegen_label_x": "2"}, {"x": "1"}, False),
        ({"imagegen_image_id": "a", "imagegen_label_x": "1", "imagegen_label_y": "1"}, {"x": "1"}, False),
    ],
)
def test_is_same_image(tags: dict[str, str], labels: dict[str, str], same: bool) -> None:
    assert is_same_image(tags, "a", labels) is same
