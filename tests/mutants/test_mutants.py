"""The lists of mistakes fit today's files. `make mutants` plants them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.mutants.run import REPOSITORY, Mutant, read_mutants, read_results

MUTANTS = read_mutants()


def test_ids_differ() -> None:
    ids = {mutant.id for mutant in MUTANTS}
    assert len(ids) == len(MUTANTS)
    assert read_results().keys() <= ids


def test_each_mistake_fits_once() -> None:
    faults = {mutant.id: [*_faults(mutant)] for mutant in MUTANTS if not mutant.gone}
    assert {name: found for name, found in faults.items() if found} == {}


def _faults(mutant: Mutant) -> Iterator[str]:
    count = (REPOSITORY / mutant.file).read_text(encoding="utf-8").count(mutant.old) if mutant.old else 0
    if count != 1:
        yield f"{mutant.file} has its text {count} times"
    if mutant.new == mutant.old:
        yield "it changes nothing"
    files = [name.partition("::")[0] for name in (*mutant.tests, *mutant.slow)]
    yield from (f"{name} does not exist" for name in files if not (REPOSITORY / name).exists())
    if not mutant.tests:
        yield "it names no tests"


def test_mistake_without_its_code_says_what_became_of_it() -> None:
    """A row whose code is gone names its successor, or says why there is none, instead of a file and its text."""
    assert [one.id for one in MUTANTS if bool(one.gone) == bool(one.file or one.old or one.new)] == []
