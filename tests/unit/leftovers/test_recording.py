"""What a run tells the journal before it makes anything."""

from __future__ import annotations

import dataclasses
import datetime
import io
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.leftovers.sweep import read_runs, record_in_journal
from imagegen.providers import Remains
from imagegen.providers.aws import provider as aws
from imagegen.providers.aws.settings import Auth, Place
from imagegen.run import Run
from tests.conftest import REPOSITORY, load_today, make_test_lock
from tests.provider_answers import answer

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.leftovers.journal import RecordedRun
    from imagegen.plan.model import BuildPlan

CONFIG = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
RUN = Run({}, {}, "2026-11-18T10:00:00Z", "20261118t100000z-1a2b3c", console=Console(io.StringIO(), plain=True))
PLACE = Place(region="us-east-1", auth=Auth(), account="111122223333")


@pytest.fixture(scope="module")
def plan() -> BuildPlan:
    loaded = load_today(CONFIG)
    return pipeline.decide(pipeline.prepare_target(loaded, "aws"), make_test_lock(loaded)).plan


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, aws, place=lambda *_: PLACE, leftovers=lambda *_: Remains(()))


def recorded(plan: BuildPlan, out: Path, on_error: str = "cleanup") -> RecordedRun:
    here = dataclasses.replace(RUN, out=out)
    with record_in_journal(plan, out / "node" / "journal", here, on_error) as run:
        [found] = read_runs(out, pytest.fail)
        assert run.expires_at == found.entry.expires_at
    return found


def seconds_of(run: RecordedRun) -> float:
    expires = datetime.datetime.fromisoformat(run.entry.expires_at)
    return (expires - datetime.datetime.now(datetime.UTC)).total_seconds()


@pytest.mark.parametrize("sizes", [1, 3])
def test_nothing_of_a_run_expires_while_any_of_its_builds_may_go_on(
    sizes: int, plan: BuildPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, aws, builder_sizes=lambda _: ["m6i.large"] * sizes)
    left_s = seconds_of(recorded(plan, tmp_path))
    # An hour for Packer's clean-up, the build's own limit for each size.
    assert left_s == pytest.approx(plan.build.longest_s * sizes + 3600, abs=60)
    assert plan.build.longest_s >= 3600


def test_a_run_that_may_keep_its_machine_says_so(plan: BuildPlan, tmp_path: Path) -> None:
    kept = recorded(plan, tmp_path, "abort")
    assert (kept.entry.on_error, kept.keeps_leftovers) == ("abort", True)
