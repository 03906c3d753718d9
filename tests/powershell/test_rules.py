"""Each rule finds what it is for and nothing else; the tables that the rules read hold what they say."""

from __future__ import annotations

import pytest

from tests.powershell import cases_flow, cases_form, cases_types, cases_values, cases_words
from tests.powershell.cases import Bad, Good, script_of
from tests.powershell.cmdlets import RELEASES, cmdlets
from tests.powershell.dotnet import STATIC_MEMBERS
from tests.powershell.repository import RULES
from tests.powershell.rules_form import parses, plain_bytes
from tests.powershell.tables import CMDLET_TABLES, COMMON_PARAMETERS, FALSE_ALARMS, SWITCHES

CASES = (cases_form, cases_words, cases_types, cases_flow, cases_values)
GOOD = [case for module in CASES for case in module.GOOD]
BAD = [case for module in CASES for case in module.BAD]


def _name(case: Good | Bad) -> str:
    return f"{case.rule.__name__}-{case.code!r}"[:90]


@pytest.mark.parametrize("case", GOOD, ids=_name)
def test_good_code_passes(case: Good) -> None:
    assert case.rule(script_of(case)) == []


@pytest.mark.parametrize("case", BAD, ids=_name)
def test_bad_code_is_found(case: Bad) -> None:
    (found,) = case.rule(script_of(case))

    assert found.startswith(f"{case.path}:{case.line}: ")
    assert case.message in found


@pytest.mark.parametrize("case", [case for case in (*GOOD, *BAD) if case.rule not in (parses, plain_bytes)], ids=_name)
def test_cases_are_read_by_the_grammar(case: Good | Bad) -> None:
    assert parses(script_of(case)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_rule_has_cases_of_both_sorts(rule: object) -> None:
    assert any(case.rule is rule for case in GOOD)
    assert any(case.rule is rule for case in BAD)


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


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_every_switch_is_a_parameter_of_some_cmdlet(name: str) -> None:
    known = {parameter.lower() for cmdlet in cmdlets().values() for parameter in cmdlet.parameters}

    assert name in known | {parameter.lower() for parameter in COMMON_PARAMETERS}


@pytest.mark.parametrize("name", sorted({name for table in CMDLET_TABLES for name in table}))
def test_tables_name_cmdlets_as_they_are_looked_up(name: str) -> None:
    assert name in cmdlets()


def test_static_members_are_read_with_their_argument_counts() -> None:
    assert STATIC_MEMBERS["io.file"]["move"] == 2
    assert STATIC_MEMBERS["datetime"] == {"now": None, "utcnow": None}
    assert all(name == name.lower() and not name.startswith("system.") for name in STATIC_MEMBERS)
