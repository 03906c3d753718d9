"""The folders of a node that are closed, and the rights in them that an image gives on purpose."""

from __future__ import annotations

import dataclasses
import ntpath
from typing import TYPE_CHECKING, Final

from imagegen.catalog.facts import paths
from imagegen.steps.accounts import TRUSTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from imagegen.boot.node import Access
    from imagegen.settle.spec import Spec

_READ: Final = frozenset({"Read", "ReadAndExecute"})
_CREATE: Final = _READ | {"CreateFiles, AppendData"}
_NONE: Final = frozenset[str]()
_TOKENS: Final = "B9"
_CONTAINERD_LOG: Final = "N2"
_DEBUG: Final = "B7"


@dataclasses.dataclass(frozen=True)
class Guarded:
    """A file, or a folder with everything in it, and the rights that others than SYSTEM and the administrators may have
    there. It need not exist."""

    path: str
    rights: frozenset[str]
    row: str = ""
    """The row of docs/reality.md that says why."""
    only_inside: bool = False
    """Whether the folder itself may be open: others then see the names in it."""

    def contains(self, path: str) -> bool:
        here, folder = path.lower(), self.path.lower()
        return here.startswith(f"{folder}\\") or (here == folder and not self.only_inside)


# By the name of the folder in the image's layout, and what is in it. A program that everybody may run is open for
# reading. Containers run as members of Users and mount volumes from `pods` (docs/guest.md).
_LAYOUT: Final = (
    ("etc_kubernetes", "", _NONE, ""),
    ("kubelet", "", _NONE, ""),
    ("kubelet", r"\pods", _CREATE, ""),
    ("kubelet_logs", "", _NONE, ""),
    ("csi_proxy_logs", "", _NONE, ""),
    ("flannel_logs", "", _NONE, ""),
    ("calico", "", _NONE, ""),
    ("calico_logs", "", _NONE, ""),
    ("hybrid_overlay_logs", "", _NONE, ""),
    ("kube_proxy_logs", "", _NONE, ""),
    ("wins", "", _NONE, ""),
    ("cni_bin", "", _NONE, ""),
    ("cni_config", "", _NONE, ""),
    ("flannel", "", _NONE, ""),
    ("kubernetes", "", _NONE, ""),
    ("containerd", "", _READ, ""),
    ("containerd_data", "", _NONE, ""),
    ("containerd_logs", "", _NONE, _CONTAINERD_LOG),
    ("docker", "", _READ, ""),
    ("docker_data", "", _NONE, ""),
    ("cri_dockerd", "", _READ, ""),
    ("cri_dockerd_logs", "", _NONE, ""),
    ("cloudbase_init", "", _READ, ""),
    ("cloudbase_init", r"\conf", _NONE, ""),
    ("cloudbase_init", r"\log", _NONE, _DEBUG),
)
# User data writes secrets to these, and may make other folders beside them.
_OF_USER_DATA: Final = ("run_kubeadm", "run_cluster_api")
# Folders at the top of the drive. Who can change one of them can replace what is in it, and containerd and kubelet run
# programs from there as SYSTEM.
_TOP: Final = tuple(rf"C:\{name}" for name in ("etc", "opt", "run", "usr", "var"))
_OF_WINDOWS: Final = (r"c:\program files", r"c:\program files (x86)", r"c:\programdata")
# OpenSSH's own folder: everybody may read its configuration and its public keys.
_SSH: Final = r"C:\ProgramData\ssh"
_SSH_SECRETS: Final = (
    "administrators_authorized_keys",
    *(f"ssh_host_{kind}_key" for kind in ("dsa", "ecdsa", "ed25519", "rsa")),
)
_RELEASE_RECORD: Final = r"C:\ProgramData\imagegen"
_ELSEWHERE: Final = (
    Guarded(_SSH, _READ),
    *(Guarded(rf"{_SSH}\{name}", _NONE) for name in _SSH_SECRETS),
    Guarded(_RELEASE_RECORD, _NONE),
)


def layout_of(spec: Spec) -> dict[str, str]:
    """The image's folders by name."""
    return {**paths(), "kubernetes": spec.config.kubernetes.install_path}


def list_guarded(layout: Mapping[str, str]) -> tuple[Guarded, ...]:
    """The guarded folders of an image with this layout. For a path the longest one that contains it decides."""
    folders = dict.fromkeys(ntpath.dirname(layout[name]) for name in _OF_USER_DATA)
    above_programs = "\\".join(layout["kubernetes"].split("\\")[:2])
    top = [above_programs] if above_programs.lower() not in _OF_WINDOWS else []
    return (
        *(Guarded(layout[name] + inside, rights, row) for name, inside, rights, row in _LAYOUT),
        *(Guarded(folder, _NONE, _TOKENS, only_inside=True) for folder in folders),
        *(Guarded(folder, _NONE) for folder in (*_TOP, *top)),
        *_ELSEWHERE,
    )


def may_change(access: Access) -> bool:
    """Whether an entry lets others than SYSTEM and the administrators change a file."""
    return access.sid not in TRUSTED and access.rights not in _READ


def find_guard(guarded: Iterable[Guarded], path: str) -> Guarded | None:
    """What decides about a path."""
    return max((one for one in guarded if one.contains(path)), key=lambda one: len(one.path), default=None)


def find_open(guarded: tuple[Guarded, ...], found: Iterable[Access]) -> Iterator[tuple[str, Access]]:
    """The rights that nobody gave on purpose, each with its row of docs/reality.md."""
    for access in found:
        guard = None if access.sid in TRUSTED else find_guard(guarded, access.path)
        if guard is not None and access.rights not in guard.rights:
            yield guard.row, access
