"""What must be so on a machine that came up as a node. Each check judges one thing, and each of its reasons names the
row of docs/reality.md that explains it, where there is one.

The checks are in the order in which a node comes up, and so are the reasons of a check: a cause is before its effects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.boot import cloudbase_init, kubernetes, pods, record, traces, windows
from imagegen.boot.check import Verdict

if TYPE_CHECKING:
    from collections.abc import Container

    from imagegen.boot.node import Node

CHECKS: Final = (
    cloudbase_init.SETUP,
    *cloudbase_init.CHECKS,
    *windows.CHECKS,
    *kubernetes.CHECKS,
    *pods.CHECKS,
    *traces.CHECKS,
    *record.CHECKS,
)


NAMES: Final = tuple(check.name for check in CHECKS)


def judge(node: Node, only: Container[str] = NAMES) -> list[Verdict]:
    """Make every check that applies. If Windows Setup did not end, nothing else can be judged."""
    checks = (cloudbase_init.SETUP,) if node.first.setup_failure else CHECKS
    return [
        Verdict(check, tuple(check.find(node))) for check in checks if check.name in only and check.applies(node.spec)
    ]
