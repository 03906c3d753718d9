"""The error with which kubelet ends."""


class KubeletError(Exception):
    """kubelet ends with this message."""
