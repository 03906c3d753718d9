"""The janitor's words and exit codes, and how it goes on when things turn up or will not go; no cloud is asked."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.console import Console
from imagegen.base.errors import ImagegenError, RefusedError
from imagegen.cli.main import main
from imagegen.leftovers import sweep
from imagegen.leftovers.journal import Entry, read_runs, recorded
from imagegen.leftovers.sweep import warn_of_leftovers
from imagegen.providers import Leftover, Remains, RunFacts
from imagegen.providers.aws.settings import Place
from imagegen.providers.provider import Provider, provider
from imagegen.run import Run
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pydantic

    Ran = Callable[..., tuple[object, list[str], str]]

DEAD, FOREIGN = "20261118t100000z-1a2b3c", "20261117t100000z-4d5e6f"
PLACE = {
    **{"region": "us-east-1", "copy_regions": []},
    **{"auth": {"profile": None, "assume_role": None}, "account": "111122223333"},
}
PAST = "2026-01-01T00:00:00Z"
LATER = "2099-01-01T00:00:00Z"


def leftover(kind: str, run_id: str = DEAD, expires_at: str = LATER) -> Leftover:
    return Leftover(kind, f"{kind}-1", "us-east-1", "node", "available", run_id, expires_at, "")


class Cloud:
    """Things in an order; one that goes may bring another to light, and one may be stuck."""

    def __init__(self, *things: Leftover) -> None:
        self.things = list(things)
        self.brings: dict[str, Leftover] = {}
        self.stuck: dict[str, str] = {}
        self.asked: list[tuple[str, list[str]]] = []
        self.faults: list[ImagegenError] = []

    def answering_for(self, name: str) -> Provider:
        """That cloud, with these things in its places."""
        return dataclasses.replace(
            provider(name),
            place=lambda *_: Place.model_validate(PLACE),
            leftovers=self.leftovers,
            usual_leftovers=None,
            remove=self.remove,
        )

    def leftovers(self, place: pydantic.BaseModel, *_: object) -> Remains:
        assert place.model_dump(exclude_unset=True) in (PLACE, AZURE_PLACE)
        self.asked.append(("look", []))
        return Remains(tuple(self.things), tuple(self.faults))

    def remove(
        self, place: pydantic.BaseModel, leftovers: Sequence[Leftover], _run: RunFacts
    ) -> Iterator[tuple[Leftover, str]]:
        assert place.model_dump() == PLACE
        self.asked.append(("remove", [each.id for each in leftovers]))
        for each in leftovers:
            if each.id not in self.stuck:
                self.things.remove(each)
                self.things += [self.brings[each.id]] if each.id in self.brings else []
            yield each, self.stuck.get(each.id, "")


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    made = Cloud()
    clouds = {"aws": made.answering_for("aws"), "azure": provider("azure")}
    monkeypatch.setattr(sweep, "provider", clouds.__getitem__)
    return made


@pytest.fixture
def janitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    """The verb in a folder where one run failed: exit code, lines of standard output, standard error."""
    entry = Entry(DEAD, "aws", "", PLACE, "2026-11-18T10:00:00Z", PAST)
    with pytest.raises(ValueError, match="cut off"), recorded(tmp_path / "node" / "journal", entry, pytest.fail):
        raise ValueError("cut off")

    def ran(*words: object) -> tuple[object, list[str], str]:
        monkeypatch.setattr(sys, "argv", ["imagegen", "janitor", "--out", str(tmp_path), *map(str, words)])
        with pytest.raises(SystemExit) as exit_:
            main()
        captured = capsys.readouterr()
        return exit_.value.code, captured.out.splitlines(), captured.err

    return ran


def test_it_lists_and_says_what_to_type(cloud: Cloud, janitor: Ran, tmp_path: Path) -> None:
    cloud.things = [leftover("instance"), leftover("volume", FOREIGN)]
    code, lines, told = janitor()
    assert code == 0
    assert lines == [
        f"may go       aws us-east-1  instance instance-1 node (available) of run {DEAD}: its run has ended (failed)",
        f"stays        aws us-east-1  volume volume-1 node (available) of run {FOREIGN}: "
        f"a run on another machine may use it until {LATER}",
    ]
    assert told.endswith(" 1 may go: the same command with --delete removes it\n")
    assert cloud.asked == [("look", [])]
    assert read_runs(tmp_path, pytest.fail)[0].may_have_left_something


def test_what_comes_to_light_goes_too_and_the_journal_is_closed(cloud: Cloud, janitor: Ran, tmp_path: Path) -> None:
    cloud.things = [leftover("resource group"), leftover("volume", FOREIGN)]
    cloud.brings = {"resource group-1": leftover("soft-deleted key vault")}
    code, lines, told = janitor("--delete", "--plain")
    assert code == 0
    assert [line.split()[0] for line in lines] == ["removed", "removed", "stays"]
    assert "aws  soft-deleted key vault soft-deleted key vault-1 removed\n" in told
    assert cloud.asked[1::2] == [("remove", ["resource group-1"]), ("remove", ["soft-deleted key vault-1"])]
    assert cloud.things == [leftover("volume", FOREIGN)]
    [run] = read_runs(tmp_path, pytest.fail)
    assert (run.ended, run.may_have_left_something) == ("cleaned up", False)


def test_what_will_not_go_is_tried_once_and_is_exit_code_7(cloud: Cloud, janitor: Ran, tmp_path: Path) -> None:
    cloud.things = [leftover("security group"), leftover("key pair")]
    cloud.stuck = {"security group-1": "DependencyViolation: in use"}
    code, lines, told = janitor("--delete", "--format", "json")
    assert code == 7
    whole = json.loads("\n".join(lines))
    assert [(each["id"], each["outcome"], each["reason"]) for each in whole] == [
        ("security group-1", "not removed", "DependencyViolation: in use"),
        ("key pair-1", "removed", "its run has ended (failed)"),
    ]
    assert "error: 1 of 2 leftovers could not be removed" in told
    assert [what for what, _ in cloud.asked] == ["look", "remove", "look"]
    assert read_runs(tmp_path, pytest.fail)[0].may_have_left_something


def test_the_limit_holds_over_all_passes(cloud: Cloud, janitor: Ran, tmp_path: Path) -> None:
    cloud.things = [leftover("resource group")]
    cloud.brings = {"resource group-1": leftover("soft-deleted key vault")}
    code, lines, _ = janitor("--delete", "--limit", "1")
    assert (code, [line.split()[0] for line in lines]) == (0, ["removed", "stays"])
    assert lines[1].endswith("over the limit of this run (--limit)")
    assert read_runs(tmp_path, pytest.fail)[0].may_have_left_something


def test_a_config_says_where_to_look_too(cloud: Cloud, janitor: Ran) -> None:
    code, _, told = janitor(REPOSITORY / "configs" / "windows-2022-containerd.yaml", "--target", "aws")
    # The config's place is that of the journal: it is looked at once.
    assert (code, cloud.asked) == (0, [("look", [])])
    assert "nothing to remove" in told


def test_a_target_that_is_not_in_the_config_is_an_error(cloud: Cloud, janitor: Ran) -> None:
    code, _, told = janitor(REPOSITORY / "configs" / "windows-2022-containerd.yaml", "--target", "gcp")
    assert (code, cloud.asked) == (2, [])
    assert "the config has no target 'gcp'" in told


def test_where_nothing_was_started_there_is_nothing_to_look_at(cloud: Cloud, janitor: Ran, tmp_path: Path) -> None:
    code, lines, told = janitor("--out", tmp_path / "empty")
    assert (code, lines, cloud.asked) == (0, [], [])
    assert "no journal" in told


@pytest.mark.parametrize("words", [(), ("--delete",)])
def test_a_place_that_cannot_be_looked_at_hides_no_other(
    words: tuple[str, ...], cloud: Cloud, janitor: Ran, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cloud.things = [leftover("instance")]
    away = Cloud()
    monkeypatch.setattr(away, "leftovers", _refuse)
    clouds = {"aws": cloud.answering_for("aws"), "azure": away.answering_for("azure")}
    monkeypatch.setattr(sweep, "provider", clouds.__getitem__)
    entry = Entry(FOREIGN, "azure", "", AZURE_PLACE, "", PAST)
    with recorded(tmp_path / "a" / "journal", entry, pytest.fail):
        code, lines, told = janitor(*words)
    assert code == 5
    assert [line.split()[0] for line in lines] == ["removed" if words else "may"]
    assert "error: the subscription is away" in told


@pytest.mark.parametrize("words", [(), ("--delete",)])
def test_a_list_that_is_refused_is_told_once_and_hides_no_other(
    words: tuple[str, ...], cloud: Cloud, janitor: Ran, tmp_path: Path
) -> None:
    cloud.things = [leftover("resource group")]
    cloud.brings = {"resource group-1": leftover("soft-deleted key vault")}
    cloud.faults = [RefusedError("looking for versions: no"), RefusedError("looking for spot requests: no")]
    code, lines, told = janitor(*words)
    assert (code, [line.split()[0] for line in lines]) == (7, ["removed"] * 2 if words else ["may"])
    assert "error: not every place could be searched" in told
    assert [told.count(fault.message) for fault in cloud.faults] == [1, 1]
    # Something of the run may be where nobody may look.
    assert read_runs(tmp_path, pytest.fail)[0].may_have_left_something


def _refuse(*_: object, **__: object) -> Remains:
    raise RefusedError("the subscription is away")


AZURE_AUTH = {"method": "cli", "subscription_id": "sub", "client_secret_env": None}
AZURE_PLACE = {
    **{"auth": AZURE_AUTH, "location": "westeurope", "build_resource_group": None},
    **{"resource_group": "images", "gallery": "gal", "definition": "def"},
}


@pytest.mark.parametrize(
    ("target", "place", "says"),
    [
        ("gcp", PLACE, "'gcp' is no provider of this version"),
        ("aws", {}, "its place is none of aws"),
        ("aws", {**PLACE, "region": 7}, "its place is none of aws"),
        ("azure", {}, "its place is none of azure"),
        ("azure", {**AZURE_PLACE, "resource_group": "x/../y"}, "its place is none of azure"),
    ],
)
@pytest.mark.parametrize("words", [(), ("--delete",)])
def test_a_damaged_journal_is_named_and_hides_nothing(
    target: str,
    place: dict[str, Any],
    says: str,
    words: tuple[str, ...],
    cloud: Cloud,
    janitor: Ran,
    tmp_path: Path,
) -> None:
    cloud.things = [leftover("instance")]
    entry = Entry(FOREIGN, target, "", place, "", PAST)
    with recorded(tmp_path / "a" / "journal", entry, pytest.fail):
        code, lines, told = janitor(*words)
    assert (code, [line.split()[0] for line in lines]) == (0, ["removed" if words else "may"])
    assert told.count(f"{FOREIGN}.jsonl: {says}") == 1
    warned = io.StringIO()
    warn_of_leftovers(Run({}, {}, "", console=Console(warned, plain=True), out=tmp_path))
    assert says in warned.getvalue()


def test_what_places_there_are() -> None:
    provider("azure").place_model.model_validate(AZURE_PLACE)
    provider("aws").place_model.model_validate(PLACE)


def test_a_journal_stays_open_until_the_time_of_its_run_is_over(cloud: Cloud, janitor: Ran, tmp_path: Path) -> None:
    assert cloud.things == []
    entry = Entry(FOREIGN, "aws", "", PLACE, "", LATER)
    with contextlib.suppress(ValueError), recorded(tmp_path / "a" / "journal", entry, pytest.fail):
        raise ValueError
    assert janitor("--delete")[0] == 0
    assert {run.entry.run_id: run.ended for run in read_runs(tmp_path, pytest.fail)} == {
        DEAD: "cleaned up",
        FOREIGN: "failed",
    }
