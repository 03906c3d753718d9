"""What must be so about the plugin from which Windows gets the credentials of gMSAs."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts


def _gmsa(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.gmsa
    if found is None:
        return
    if not found.is_listed:
        yield say("Windows does not load the plugin of gMSAs: its class is not below Control\\CCG\\COMClasses")
    if not found.dll:
        yield say("the class of the plugin of gMSAs is not registered")
    elif not found.has_dll:
        yield say(f"the plugin of gMSAs is registered as {found.dll}, which is missing")
    elif not found.surrogate:
        yield say("the class of the plugin of gMSAs has no process to run in")
    if found.is_open:
        yield say("administrators can change the list of plugins of gMSAs: its key was not restored")
    if found.sources:
        yield say(f"Windows does not know the source of events {some(found.sources)}")


CHECKS: Final = (
    Check(
        "gmsa",
        "the plugin of gMSAs is registered, and its key is closed again",
        _gmsa,
        lambda facts: facts.gmsa is not None,
    ),
)
