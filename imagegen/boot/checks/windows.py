"""What must be so about the settings of Windows."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts

_HIGH_PERFORMANCE: Final = "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c"


def _time_zone(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.windows
    if found.time_zone != found.wanted_time_zone:
        yield say(f"the time zone is {found.time_zone}, and the config has {found.wanted_time_zone}")


def _dns_suffix(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.windows
    if found.dns_suffix.lower() != found.wanted_dns_suffix.lower():
        yield say(f"the DNS suffix is '{found.dns_suffix}', and the config has {found.wanted_dns_suffix}")


def _power(facts: NodeFacts) -> Iterator[Finding]:
    if facts.windows.power_plan != _HIGH_PERFORMANCE:
        yield say(f"the power plan is {facts.windows.power_plan or 'unknown'}, not high performance")


def _time_service(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.windows.keeps_time:
        yield say("the time service does not run, so the clock drifts and certificates seem invalid")


def _ports(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.windows
    for protocol, count in found.dynamic_ports.items():
        if count < found.wanted_dynamic_ports:
            yield say(f"programs can get {count} {protocol} ports, and need {found.wanted_dynamic_ports}")
    for ports in found.given_ports:
        yield say(f"a program can get the ports {ports}")


def _defender(facts: NodeFacts) -> Iterator[Finding]:
    if facts.windows.scanned:
        yield say(f"Defender scans the files that {some(facts.windows.scanned)} opens")


CHECKS: Final = (
    Check(
        "time-zone",
        "the time zone is the config's",
        _time_zone,
        lambda facts: bool(facts.windows.wanted_time_zone),
    ),
    Check(
        "dns-suffix", "the DNS suffix is the config's", _dns_suffix, lambda facts: bool(facts.windows.wanted_dns_suffix)
    ),
    Check("power", "the power plan is high performance", _power),
    Check("time-service", "the time service runs", _time_service),
    Check("ports", "programs have enough ports, and none that is reserved", _ports),
    Check("defender", "Defender does not scan what kubelet and the container runtime open", _defender),
)
