"""What was found when an administrator looked after a node that had come up: facts of later commands."""

from imagegen.steps.resource import Strict


class Drift(Strict):
    """What `start.ps1 -Check` finds on the node."""

    exit_code: int
    found: tuple[str, ...]
    """The resources that are not as planned, each with its reasons."""
    planted: str
    """The path of a file that was then changed."""
    planted_code: int
    found_planted: tuple[str, ...]
    """The resources that are not as planned because of this change."""


class Upgrade(Strict):
    """What became of a node that was given the programs of another version."""

    failure: str
    """The command that failed, and what it said. Empty if none did."""
    version: str
    """The version of the kubelet that the cluster knows. Empty if kubelet does not run."""
    wanted: str


class Rejoin(Strict):
    """What became of a node that was taken out of its cluster by reset-node.ps1, and joined again."""

    failure: str
    """The command that failed, and what it said. Empty if none did."""
    left: tuple[str, ...]
    """What the reset left of the cluster: files and networks."""
    is_up: bool
    """Whether kubelet runs again, and the network of pods is up if the image has its plugin."""
    nodes: tuple[str, ...]
    """The names of the nodes that registered since."""
    drifted: tuple[str, ...]
    """The resources that are not as planned since then, each with its reasons."""
