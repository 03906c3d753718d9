"""Each rule finds what it is for and nothing else; the tables that the rules read hold what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.powershell import cases_flow, cases_form, cases_types, cases_values, cases_words
from tests.powershell.cases import Bad, Good, script_of
from tests.powershell.cmdlets import RELEASES, cmdlets
from tests.powershell.dotnet import STATIC_MEMBERS
from tests.powershell.repository import RULES
from tests.powershell.rules_form import parses, plain_bytes
from tests.powershell.tables import CMDLET_TABLES, COMMON_PARAMETERS, FALSE_ALARMS, SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.powershell.cases import Rule

CASES = (cases_form, cases_words, cases_types, cases_flow, cases_values)
GOOD = [case for module in CASES for case in module.GOOD]
BAD = [case for module in CASES for case in module.BAD]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_finds_what_is_bad_and_nothing_else(rule: Rule) -> None:
    good = [case for case in GOOD if case.rule is rule]
    bad = [case for case in BAD if case.rule is rule]
    wrong = [fault for case in (*good, *bad) for fault in _misjudged(case)]

    assert good
    assert bad
    assert not wrong, "\n".join(wrong)


def _misjudged(case: Good | Bad) -> Iterator[str]:
    found = case.rule(script_of(case))
    if isinstance(case, Good):
        wrong = bool(found)
    else:
        wrong = len(found) != 1 or not found[0].startswith(f"{case.path}:{case.line}: ") or case.message not in found[0]
    if wrong:
        yield f"{case}: found {found}"


def test_every_case_is_of_a_rule() -> None:
    assert {case.rule for case in (*GOOD, *BAD)} == set(RULES)


def test_cases_are_read_by_the_grammar() -> None:
    cases = [case for case in (*GOOD, *BAD) if case.rule not in (parses, plain_bytes)]
    wrong = [f"{case}: {found}" for case in cases if (found := parses(script_of(case)))]

    assert cases
    assert not wrong, "\n".join(wrong)


def test_a_false_alarm_is_waived_by_file_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Bad(parses, "$a = 1\nGet-Thing -Name $a.Trim().Trim()\n", "")
    assert case.rule(script_of(case)) != []

    monkeypatch.setitem(FALSE_ALARMS, (case.path, "Get-Thing -Name $a.Trim().Trim()"), "argument mode")

    assert case.rule(script_of(case)) == []


def test_the_cmdlets_are_those_of_windows_powershell() -> None:
    join = cmdlets()["join-path"]

    assert join.releases == set(RELEASES)
    assert set(join.parameters) == {"ChildPath", "Credential", "Path", "Resolve", "UseTransaction"}
    assert "remove-service" not in cmdlets()


def test_every_switch_is_a_parameter_of_some_cmdlet() -> None:
    known = {parameter.lower() for cmdlet in cmdlets().values() for parameter in cmdlet.parameters}

    assert SWITCHES - known - {parameter.lower() for parameter in COMMON_PARAMETERS} == set()


def test_tables_name_cmdlets_as_they_are_looked_up() -> None:
    assert {name for table in CMDLET_TABLES for name in table} - set(cmdlets()) == set()


def test_static_members_are_read_with_their_argument_counts() -> None:
    assert STATIC_MEMBERS["io.file"]["move"] == 2
    assert STATIC_MEMBERS["datetime"] == {"now": None, "utcnow": None}
    assert all(name == name.lower() and not name.startswith("system.") for name in STATIC_MEMBERS)
