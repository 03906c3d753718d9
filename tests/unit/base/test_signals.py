"""A wait that a signal always ends."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING, Any

from imagegen.base.signals import as_finished

if TYPE_CHECKING:
    import pytest

Futures = set[concurrent.futures.Future[int]]


def test_no_wait_is_longer_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python handles a signal that it missed when the wait ends: a wait without end would never see it."""
    first, second = (concurrent.futures.Future[int]() for _ in range(2))
    waited: list[float] = []

    def wait(pending: Futures, *, timeout: float, **_: Any) -> tuple[Futures, Futures]:  # noqa: ANN401 - as wait's
        waited.append(timeout)
        finished = {future for future in pending if future.done()}
        # In turns nothing happens, and one has finished.
        if len(waited) == 2:
            second.set_result(2)
        if len(waited) == 4:
            first.set_result(1)
        return finished, pending - finished

    monkeypatch.setattr(concurrent.futures, "wait", wait)
    assert [future.result() for future in as_finished([first, second])] == [2, 1]
    assert len(waited) == 5
    assert max(waited) <= 1
