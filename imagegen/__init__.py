"""imagegen: Windows Kubernetes node images for several clouds from one declarative config."""

__version__ = "0.1.0"
