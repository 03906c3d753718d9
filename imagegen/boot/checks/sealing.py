"""What sealing must take out of the image, and the one file of imagegen that it leaves there."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts


def _leftovers(facts: NodeFacts) -> Iterator[Finding]:
    if facts.sealed.leftovers:
        yield say(f"the image still has {some(facts.sealed.leftovers)}", "G4")


def _record(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.sealed.record
    if found.failure:
        yield say(found.failure)
    if found.wrong:
        yield say(f"the release record is wrong: {some(found.wrong)}")


CHECKS: Final = (
    Check("leftovers", "nothing of the build is left in the image", _leftovers),
    Check("release-record", "the release record says what is on the node", _record),
)
