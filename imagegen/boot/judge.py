"""What must be so on a machine that came up as a node. Each check judges one thing, and each of its reasons names the
row of docs/reality.md that explains it, where there is one.

The checks are in the order in which a node comes up, and so are the reasons of a check: a cause is before its effects.
"""

from typing import Final

from imagegen.boot.check import Verdict
from imagegen.boot.checks import (
    docker,
    first_boot,
    gmsa,
    hyper_v,
    images,
    network,
    node,
    sealing,
    services,
    ssh,
    traces,
    updates,
    windows,
    wins,
)
from imagegen.boot.facts import NodeFacts
from imagegen.boot.guarded import Guarded

CHECKS: Final = (
    *first_boot.CHECKS,
    *windows.CHECKS,
    *updates.CHECKS,
    *hyper_v.CHECKS,
    *docker.CHECKS,
    *node.CHECKS,
    *network.CHECKS,
    *services.CHECKS,
    *images.CHECKS,
    *wins.CHECKS,
    *gmsa.CHECKS,
    *ssh.CHECKS,
    *traces.CHECKS,
    *sealing.CHECKS,
)


def judge(facts: NodeFacts, guarded: tuple[Guarded, ...]) -> list[Verdict]:
    """Make every check that applies. If Windows Setup did not end, nothing else can be judged."""
    checks = CHECKS[:1] if facts.setup.failure else (*CHECKS, traces.make_folder_check(guarded))
    return [Verdict(check, tuple(check.find(facts))) for check in checks if check.applies(facts)]
