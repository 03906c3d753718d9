"""What must be so about Windows updates on a node whose config wants them."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts


def _updates(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.updates
    if found is None:
        return
    if found.missing:
        yield say(f"Windows has not the updates {some(found.missing)}")
    if found.offered:
        yield say(f"Windows Update still offers {some(found.offered)}")
    if found.waits_for_restart:
        yield say("an update waits for a restart")
    if found.proxy:
        yield say(f"WinHTTP still has the proxy of the build: {found.proxy}")


CHECKS: Final = (
    Check("updates", "Windows has the updates of the config", _updates, lambda facts: facts.updates is not None),
)
