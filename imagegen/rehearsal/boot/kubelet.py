"""Looks at kubelet on a booted model machine: how it runs, and who reaches it and the volumes of its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imagegen.boot import facts
from imagegen.rehearsal.boot.observe import find_lost_address, read_kubeadm_arguments
from imagegen.rehearsal.machine.access import CREATE, USERS, effective

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.rehearsal.machine.windows import Machine
    from imagegen.rehearsal.node.kubelet import Kubelet
    from imagegen.rehearsal.node.objects import Node

# https://kubernetes.io/docs/reference/networking/ports-and-protocols/#node
_PORT: Final = 10250
_CHANGES: Final = (CREATE, "Modify", "FullControl")


def look_at_kubelet(machine: Machine, kubelet: Kubelet, folder: str, nodes: Iterable[Node]) -> facts.Kubelet:
    """`folder` is kubelet's own, and `nodes` are those of the cluster."""
    return facts.Kubelet(
        is_running=kubelet.is_running,
        # A start that was refused is later than the end of an earlier one.
        failure=machine.services.refusal("kubelet") or "".join(kubelet.ends[-1:]),
        arguments=tuple(kubelet.arguments),
        kubeadm_arguments=read_kubeadm_arguments(machine, rf"{folder}\kubeadm-flags.env"),
        lost_address=find_lost_address(kubelet.arguments, nodes),
        keeps_log=kubelet.keeps_log,
        is_reached=machine.firewall.lets_in(_PORT),
        shares_volumes=_may_change(machine, rf"{folder}\pods"),
    )


def _may_change(machine: Machine, folder: str) -> bool:
    """Whether a container, whose account is a member of Users, may make files in a folder."""
    if not machine.files.is_folder(folder):
        return False
    entries = [entry for entry in effective(machine.files, folder).entries if entry.sid == USERS and entry.inherit]
    return any(entry.rights in _CHANGES for entry in entries) and not any(entry.deny for entry in entries)
