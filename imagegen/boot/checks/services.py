"""What must be so about the services that the config adds, and about who reaches the cloud's own address."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say
from imagegen.boot.facts import Finding, NodeFacts


def _services(facts: NodeFacts) -> Iterator[Finding]:
    for found in facts.services:
        if not found.is_running:
            yield say(f"service {found.name} does not run{f': {found.failure}' if found.failure else ''}")
        elif not found.log:
            yield say(f"service {found.name} keeps no log")
        elif found.readers:
            yield say(f"others than administrators may read or write {found.log}, the log of {found.name}")


def _reached(facts: NodeFacts) -> Iterator[Finding]:
    for reach in facts.reached:
        place = f"{reach.address}, TCP port {reach.port}"
        if reach.can and not reach.may:
            yield say(f"{reach.account} can connect to {place}", "N1")
        elif reach.may and not reach.can:
            yield say(f"{reach.account} cannot connect to {place}", "N1")


CHECKS: Final = (
    Check(
        "services",
        "the services that the config adds run, and keep logs that are closed to Users",
        _services,
        lambda facts: bool(facts.services),
    ),
    Check(
        "cloud-address",
        "the cloud's own address is closed to containers, and open to cloudbase-init",
        _reached,
        lambda facts: bool(facts.reached),
    ),
)
