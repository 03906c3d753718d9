"""What a config says about the node components."""

from typing import Annotated, Literal

import pydantic

from imagegen.config.addresses import ImageRef
from imagegen.config.words import Line, PlainFolder, Version
from imagegen.resources.model import Strict

FlagName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,60}$")]
GateName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{1,80}$")]


class Kubernetes(Strict):
    """The node components."""

    version: Version = pydantic.Field(description='The Kubernetes version, quoted: "1.36.2".', examples=["1.36.2"])
    install_path: PlainFolder = pydantic.Field(
        default="C:\\k",
        description="Where kubelet, kubeadm, kubectl and crictl lie, without blanks.",
        examples=["C:\\kubernetes"],
    )
    source: Literal["binaries", "node-tarball"] = pydantic.Field(
        default="binaries",
        description="Single programs, or kubernetes-node-windows-amd64.tar.gz.",
        examples=["node-tarball"],
    )
    service_manager: Literal["windows", "nssm"] = pydantic.Field(
        default="windows", description="What keeps kubelet running: Windows itself, or nssm.", examples=["nssm"]
    )
    feature_gates: dict[GateName, bool] = pydantic.Field(
        default={}, description="kubelet's feature gates.", examples=[{"WindowsGracefulNodeShutdown": False}]
    )
    kubelet_flags: dict[FlagName, Line] = pydantic.Field(
        default={},
        description="Further flags of kubelet, without dashes; what kubeadm writes comes after and wins.",
        examples=[{"image-gc-high-threshold": "85"}],
    )
    pause_image: ImageRef | None = pydantic.Field(
        default=None,
        description="The sandbox image; the catalogue's for this Kubernetes and Windows when left out.",
        examples=["registry.example.com/pause:3.10.2"],
    )
