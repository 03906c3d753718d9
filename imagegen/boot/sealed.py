"""What was found of the sealing: what it left in the image, and the release record on the node."""

from imagegen.steps.resource import Strict


class ReleaseRecord(Strict):
    """The release record."""

    failure: str
    """Why it cannot be read. Empty if it can."""
    wrong: tuple[str, ...]
    """What it says that is not so on the node, and what it does not say."""


class Sealed(Strict):
    """A sealed image, and the node that was started from it."""

    leftovers: tuple[str, ...]
    """What the image still has of its build."""
    record: ReleaseRecord
