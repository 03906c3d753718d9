"""What a rehearsal makes of wins on a model machine, and the verdict on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.boot.facts import Wins
from imagegen.boot.judge import judge
from imagegen.rehearsal.boot.wins import WantedWins, look_at_wins
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.machine.wins import check_wins, find_pipe, find_successor, list_programs, read_wins_config
from tests.rehearsal.boot.test_boot_checks import GOOD, GUARDED

if TYPE_CHECKING:
    from imagegen.rehearsal.machine.windows import Machine

CONFIG, PROGRAM = r"C:\etc\rancher\wins\config", r"C:\k\wins.exe"
RUN = ("srv", "app", "run")
assert GOOD.wins is not None
WINS: Wins = GOOD.wins


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({}, []),
        ({"is_running": False}, ["wins does not run"]),
        ({"is_running": False, "failure": "it is gone", "programs": None}, ["wins does not run: it is gone"]),
        (
            {"pipe": r"\\.\pipe\other"},
            [r"wins answers at \\.\pipe\other, and the wins in pods connects to \\.\pipe\rancher_wins"],
        ),
        ({"programs": None}, ["wins starts every program that a pod names, because it finds no list"]),
        ({"programs": (r"C:\k\b.exe",)}, [r"wins does not start C:\k\a.exe", r"wins also starts C:\k\b.exe"]),
        (
            {"successor": r"C:\x\wins.exe"},
            [r"wins replaces its program by C:\x\wins.exe as soon as somebody writes that file"],
        ),
    ],
)
def test_the_verdict_on_wins(changes: dict[str, object], reasons: list[str]) -> None:
    facts = GOOD.model_copy(update={"wins": WINS.model_copy(update=changes)})
    (verdict,) = [verdict for verdict in judge(facts, GUARDED) if verdict.check.name == "wins"]
    assert verdict.texts == reasons


def put(machine: Machine, path: str, data: str) -> None:
    machine.files.make_folder(path.rpartition("\\")[0])
    machine.files.write(path, data.encode())


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (RUN, ""),
        (("server", "application", "run"), ""),
        (("--debug", *RUN), ""),
        ((*RUN, "--config", CONFIG), ""),
        ((), "runs without srv app run"),
        (("srv", "app"), "runs without srv app run"),
        (("cli", "app", "run"), "runs without srv app run"),
        ((*RUN, "--register"), "does not know the argument --register"),
        ((*RUN, "--config"), "does not know the argument --config"),
        ((*RUN, "--profile", "cpu"), "does not know the argument --profile"),
    ],
)
def test_the_arguments_of_wins(aws: Machine, arguments: tuple[str, ...], refusal: str) -> None:
    if not refusal:
        check_wins(aws.files, arguments)
        return
    with pytest.raises(RefusedByWindows, match=refusal):
        check_wins(aws.files, arguments)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("- a\n", "is not a map"),
        ("a: [\n", "cannot read its configuration"),
        ("listen: ' '\n", "listen could not be blank"),
        ("Listen: ''\n", "listen could not be blank"),
    ],
)
def test_wins_ends_at_a_configuration_that_it_cannot_use(aws: Machine, text: str, refusal: str) -> None:
    put(aws, CONFIG, text)
    with pytest.raises(RefusedByWindows, match=refusal):
        check_wins(aws.files, RUN)


def test_wins_reads_the_file_that_its_command_names(aws: Machine) -> None:
    assert read_wins_config(aws.files, RUN) == {}
    put(aws, r"C:\other\config", "Listen: other\n")
    found = read_wins_config(aws.files, (*RUN, "--config", r"C:\other\config"))
    assert find_pipe(found) == r"\\.\pipe\other"
    assert find_pipe({}) == r"\\.\pipe\rancher_wins"


LIST = {"processPaths": [r"C:\a.exe"]}


@pytest.mark.parametrize(
    ("config", "version", "programs"),
    [
        ({"whitelist": LIST}, "0.1.1", (r"C:\a.exe",)),
        ({"white_list": LIST}, "0.1.1", None),
        ({"whitelist": LIST}, "0.1.2", None),
        ({"white_list": LIST}, "0.1.2", (r"C:\a.exe",)),
        ({"white_list": {"PROCESSPATHS": [r"C:\a.exe"]}}, "0.15.0", (r"C:\a.exe",)),
        ({"white_list": {"process_paths": [r"C:\a.exe"]}}, "0.15.0", None),
        ({"white_list": {"processPaths": []}}, "0.15.0", None),
        ({"white_list": None}, "0.15.0", None),
        ({}, "0.15.0", None),
    ],
)
def test_the_programs_of_a_configuration(
    config: dict[str, object], version: str, programs: tuple[str, ...] | None
) -> None:
    assert list_programs(config, version) == programs


@pytest.mark.parametrize(
    ("config", "version", "successor"),
    [
        ({}, "0.4.17", r"C:\etc\rancher\wins\wins.exe"),
        ({}, "0.4.18", ""),
        ({"upgrade": {"mode": "none"}}, "0.0.4", ""),
        ({"upgrade": {"mode": "watching", "watchingPath": r"C:\x.exe"}}, "0.0.4", r"C:\x.exe"),
        ({"upgrade": None}, "0.0.4", r"C:\etc\rancher\wins\wins.exe"),
    ],
)
def test_the_program_by_which_wins_replaces_itself(config: dict[str, object], version: str, successor: str) -> None:
    assert find_successor(config, version) == successor


def test_wins_on_a_machine(aws: Machine) -> None:
    wanted = WantedWins((r"C:\k\a.exe",))
    assert look_at_wins(aws, None) is None
    found = look_at_wins(aws, wanted)
    assert found is not None
    assert (found.is_running, found.failure) == (False, "its service is not in the image")
    put(aws, PROGRAM, "MZ a stand-in for wins.exe 0.4.18, made for a rehearsal")
    put(aws, CONFIG, r"white_list: {processPaths: ['C:\k\a.exe']}")
    aws.services.create("rancher-wins", f"{PROGRAM} srv app run", "Rancher Wins", 2)
    found = look_at_wins(aws, wanted)
    assert found is not None
    assert (found.is_running, found.failure, found.pipe) == (False, "", "")
    aws.services.start("rancher-wins")
    assert look_at_wins(aws, wanted) == WINS.model_copy(update={"programs": (r"C:\k\a.exe",)})
    # A service goes on with the configuration with which it started: the next start tells.
    put(aws, CONFIG, "listen: ''\n")
    found = look_at_wins(aws, wanted)
    assert found is not None
    assert not found.is_running
    assert "blank" in found.failure
