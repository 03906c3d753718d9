"""What publish cases share: a plan of a few words, a console that nobody reads, and a clock that waits for nothing."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, TypeVar

import pytest

from imagegen.base.console import Console
from imagegen.plan.model import BuildPart, BuildPlan, ImagePart
from imagegen.providers.time_limits import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.providers.settings import TargetSettings

    S = TypeVar("S", bound=TargetSettings)


@dataclasses.dataclass
class Journal:
    """Everything that was asked of a cloud and every pause, in order."""

    lines: list[str] = dataclasses.field(default_factory=list)
    now: float = 0.0

    def note(self, line: str) -> None:
        self.lines.append(line)

    def clock(self) -> Clock:
        def pause(seconds: float) -> None:
            assert seconds > 0
            self.now += seconds
            self.note(f"pause {seconds:g}")

        return Clock(now=lambda: self.now, pause=pause)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def console() -> Console:
    return Console(io.StringIO(), plain=True)


@pytest.fixture
def make_plan() -> Callable[..., BuildPlan]:
    def make(target: str, settings: S, kubernetes: str = "1.35.6", minutes: int = 360) -> BuildPlan[S]:
        image = ImagePart(
            provider=target,
            windows={"release": "2022", "build": 20348},
            base={"name": "base"},
            versions={"kubernetes": kubernetes},
            phases=(),
            artifacts={},
            files={},
            scripts={},
        )
        return BuildPlan(image, BuildPart("node", target, {}, {}, {}, {}, {}, {}), settings, minutes)

    return make
