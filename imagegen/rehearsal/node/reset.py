"""What `kubeadm reset` does to a machine (cmd/kubeadm/app/cmd/phases/reset/cleanupnode.go of kubernetes/kubernetes).

It only warns of what it cannot stop or delete. It leaves the configuration and the networks of pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.rehearsal.boot.model import Ended, UnknownCommandError
from imagegen.rehearsal.boot.programs import full_path
from imagegen.rehearsal.machine.refusal import RefusedByWindows
from imagegen.rehearsal.node.facts import SERVICE
from imagegen.rehearsal.node.preflight import find_privilege_faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imagegen.rehearsal.boot.model import Process

# Their contents are deleted, and they stay.
_FOLDERS: Final = ("/etc/kubernetes/manifests", "/var/lib/kubelet", "/etc/kubernetes/pki")
_FILES: Final = tuple(
    f"/etc/kubernetes/{name}.conf"
    for name in ("admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler")
)


def run_reset(process: Process, arguments: Sequence[str], minor: str) -> Ended:
    """With --force and --cri-socket: without them it asks, and looks for the socket on the cluster."""
    if len(arguments) != 3 or tuple(arguments[:2]) != ("--force", "--cri-socket"):
        raise UnknownCommandError(f"kubeadm reset {' '.join(arguments)}: the rehearsal knows --force --cri-socket only")
    lines = ["[preflight] Running pre-flight checks"]
    if faults := [f"\t[ERROR {name}]: {message}" for name, message in find_privilege_faults(process, minor)]:
        return Ended(1, "\n".join([*lines, *faults]))
    files = process.machine.files
    try:
        process.machine.services.stop(SERVICE)
    except RefusedByWindows as refusal:
        lines.append(f"W [reset] The kubelet service could not be stopped by kubeadm: [{refusal}]")
    for folder in (full_path(process.folder, path) for path in _FOLDERS):
        names = files.names(folder) if files.is_folder(folder) else []
        for name in names:
            files.remove(rf"{folder}\{name}")
    for file in (full_path(process.folder, path) for path in _FILES):
        if files.exists(file):
            files.remove(file)
    return Ended(0, "\n".join([*lines, "The reset process does not clean CNI configuration."]))
