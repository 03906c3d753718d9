"""The folders of a node that are closed, and the rights in them that an image gives on purpose."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final

from imagegen.boot.facts import Access

_READ: Final = frozenset({"Read", "ReadAndExecute"})
_MODIFY: Final = _READ | {"Write", "Modify"}
_NONE: Final = frozenset[str]()


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A folder with everything in it, and the rights that others than SYSTEM and the administrators may have there."""

    path: str
    rights: frozenset[str]


# Folders by their name in the image's layout, and the folder in it. A program that everybody may run is open for
# reading. Containers run as members of Users and mount volumes from `pods` (docs/guest.md).
_LAYOUT: Final = (
    ("etc_kubernetes", "", _NONE),
    ("kubelet", "", _NONE),
    ("kubelet", r"\pods", _MODIFY),
    ("kubelet_logs", "", _NONE),
    ("run_kubeadm", "", _NONE),
    ("run_cluster_api", "", _NONE),
    ("kubernetes", "", _NONE),
    ("containerd", "", _READ),
    ("containerd_data", "", _NONE),
    ("cloudbase_init", "", _READ),
    ("cloudbase_init", r"\conf", _NONE),
    ("cloudbase_init", r"\log", _NONE),
)


def list_guarded(layout: Mapping[str, str]) -> tuple[Guarded, ...]:
    """The guarded folders of an image with this layout. For a path the longest folder that contains it decides."""
    return tuple(Guarded(layout[name] + inside, rights) for name, inside, rights in _LAYOUT)


def find_open(guarded: Iterable[Guarded], found: Iterable[Access]) -> list[Access]:
    """The rights that nobody gave on purpose."""
    longest_first = sorted(guarded, key=lambda folder: len(folder.path), reverse=True)
    return [access for access in found if access.rights not in _allowed(longest_first, access.path)]


def _allowed(longest_first: Iterable[Guarded], path: str) -> frozenset[str]:
    whole = path.lower() + "\\"
    return next((folder.rights for folder in longest_first if whole.startswith(folder.path.lower() + "\\")), _MODIFY)
