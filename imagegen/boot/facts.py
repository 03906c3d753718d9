"""What was found on a machine that was started from an image, after its first boot and after a second one."""

from imagegen.resources.model import Strict


class Access(Strict):
    """A right on a file or folder that somebody other than SYSTEM and the administrators has."""

    path: str
    sid: str
    rights: str


class CloudbaseInit(Strict):
    """What cloudbase-init did."""

    version: str
    """Empty if it did not run."""
    started_early: bool
    """Whether it was started before Windows Setup had ended."""
    is_done: bool
    """Whether it ended, and asks for no further restart."""
    crash: str
    """The error that ended it before. Empty if there was none."""
    plugins: dict[str, bool]
    """The configured plugins, by class name, and whether each has done its work on this machine."""
    complaints: tuple[str, ...]
    """The lines of its log about user data that it could not use, and about plugins that failed."""


class Kubelet(Strict):
    """The running kubelet."""

    is_running: bool
    arguments: tuple[str, ...]
    """With which it runs."""
    kubeadm_arguments: tuple[str, ...]
    """Those that kubeadm wrote when the node joined."""


class Builder(Strict):
    """What the image's builder left: the ways by which Packer reached it."""

    listeners: tuple[str, ...]
    certificates: tuple[str, ...]
    rules: tuple[str, ...]
    accounts: tuple[str, ...]
    """Its accounts that can still log on."""


class Cloud(Strict):
    """What the machine told its cloud, and what the cloud made of it."""

    reports: tuple[str, ...]
    refusal: str | None
    """Why the cloud takes the machine for one that failed, in the cloud's words."""


class NodeFacts(Strict):
    """Everything that the checks look at."""

    cloud: Cloud
    host_name: str
    wanted_host_name: str
    cloudbase_init: CloudbaseInit
    unrendered: tuple[str, ...]
    """The files of user data in which a template was left as it is."""
    join: str
    """The last line of what kubeadm said, if it failed. Empty if the machine joined, or did not try."""
    kubelet: Kubelet
    nodes: tuple[str, ...]
    """The names of the nodes that registered with the cluster."""
    wanted_node: str
    leaks: tuple[str, ...]
    """The files, and consoles, that hold a secret of the user data, without those that are closed to all others."""
    access: tuple[Access, ...]
    """The rights on the guarded folders, and on everything in them."""
    builder: Builder
    changed_by_restart: tuple[str, ...]
    """What the second boot changed that it must not change."""
