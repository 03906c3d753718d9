"""What must be so about Hyper-V on a node whose config wants it."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say, some
from imagegen.boot.facts import Finding, NodeFacts


def _hyper_v(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.hyper_v
    if found is None:
        return
    if not found.service_runs:
        yield say("the service of Hyper-V does not run", "N13")
    if not found.has_commands:
        yield say("PowerShell has no commands of Hyper-V", "N13")
    isolates = found.wanted == "isolation"
    if isolates and not found.runs_hypervisor:
        yield say("the hypervisor does not run, so no pod can be isolated", "N13")
    elif found.runs_hypervisor and not isolates:
        yield say("the hypervisor runs, and the config has only the tools", "N13")
    if found.missing_handlers:
        yield say(f"containerd has no handler {some(found.missing_handlers)}")
    if found.missing_gate:
        yield say(f"kubelet runs without the feature gate {found.missing_gate}")


CHECKS: Final = (
    Check("hyper-v", "Hyper-V is there as the config has it", _hyper_v, lambda facts: facts.hyper_v is not None),
)
