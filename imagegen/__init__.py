"""imagegen: Windows Kubernetes node images for Azure and AWS from one declarative config."""

__version__ = "0.1.0"
