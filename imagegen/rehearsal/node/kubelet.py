"""The flags and feature gates with which kubelet of a minor starts. The words are kubelet's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imagegen.rehearsal.node.facts import is_within, read_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def find_refusals(arguments: Sequence[str], minor: str) -> Iterator[str]:
    """The flags and gates that kubelet does not know. It ends at the first one."""
    known = read_facts("kubelet")
    for word in arguments:
        name, _, value = word.lstrip("-").partition("=")
        if not word.startswith("--") or name not in known["flags"] or not is_within(minor, *known["flags"][name]):
            yield f"failed to parse kubelet flag: unknown flag: --{name}"
        gates = [pair.partition("=")[0].strip() for pair in value.split(",")] if name == "feature-gates" else []
        for gate in filter(None, gates):
            if gate not in known["gates"] or not is_within(minor, *known["gates"][gate]):
                yield f"failed to set feature gates: unknown feature gate: {gate}"
