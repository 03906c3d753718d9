"""What must be so about the container images that were pulled while the image was built."""

from collections.abc import Iterator
from typing import Final

from imagegen.boot.check import Check, say
from imagegen.boot.facts import Finding, NodeFacts


def _pods(facts: NodeFacts) -> Iterator[Finding]:
    for pod in facts.pods:
        if pod.failure:
            what = f"a pod of {pod.image} does not start" if pod.image else "no pod starts"
            yield say(f"without a registry, {what}: {pod.failure}")


CHECKS: Final = (
    Check(
        "images",
        "a pod of each pulled image starts while no registry can be reached",
        _pods,
        lambda facts: bool(facts.pods),
    ),
)
