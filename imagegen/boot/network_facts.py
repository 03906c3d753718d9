"""What was found about the network of pods on a machine that was started from an image."""

from imagegen.steps.resource import Strict


class PodNetwork(Strict):
    """The network of pods, if the image has its plugin."""

    plugin: str
    """Empty if the cluster installs its own plugin."""
    unready: str
    """Why the cluster knows the node as not ready, in kubelet's words. Empty if it knows it as ready."""
    refusal: str
    """Why a pod gets no address, in the words of the runtime or a plugin. Empty if it gets one."""
    missing_routes: tuple[str, ...] | None
    """The static routes between nodes that are missing, as sentences. None if the plugin needs none."""


class KubeProxy(Strict):
    """The service kube-proxy, if the config adds it."""

    is_asked: bool
    failure: str
    """Why it does not run. Empty if it does, or waits for its network."""
    node: str
    """The node for which it runs."""
    network: str
    """The network that it uses, or waits for."""
    waits: bool


class NetworkPolicies(Strict):
    """What enforces network policies beside the network plugin, if the config adds it."""

    is_running: bool
    failure: str
    """Why it does not run. Empty if nothing is known."""
    networks: str
    """The pattern of the names of the networks in which it enforces policies. Empty if it does not run."""
    is_enforced: bool
    """Whether the network of pods has such a name."""
