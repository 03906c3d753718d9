"""What must be so about wins: it starts the programs of the config for pods, and no others."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts


def _wins(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.wins
    if found is None:
        return
    if not found.is_running:
        yield say(f"wins does not run{f': {found.failure}' if found.failure else ''}")
        return
    if found.pipe != found.wanted_pipe:
        yield say(f"wins answers at {found.pipe}, and the wins in pods connects to {found.wanted_pipe}")
    if found.programs is None:
        yield say("wins starts every program that a pod names, because it finds no list")
    else:
        listed, wanted = ({one.lower(): one for one in names} for names in (found.programs, found.wanted_programs))
        if missing := [listed_as for name, listed_as in wanted.items() if name not in listed]:
            yield say(f"wins does not start {some(missing)}")
        if others := [listed_as for name, listed_as in listed.items() if name not in wanted]:
            yield say(f"wins also starts {some(others)}")
    if found.successor:
        yield say(f"wins replaces its program by {found.successor} as soon as somebody writes that file")


CHECKS: Final = (
    Check("wins", "wins runs, and starts the programs of the config only", _wins, lambda facts: facts.wins is not None),
)
