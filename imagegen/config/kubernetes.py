"""What a config says about the node components."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.config.words import ImageRef, Line, PlainFolder, Version
from imagegen.resources.model import Strict

FlagName = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,60}$")]
GateName = Annotated[str, pydantic.StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{1,80}$")]


class Kubernetes(Strict):
    """The node components."""

    version: Annotated[
        Version, pydantic.Field(description='The Kubernetes version, quoted: "1.36.2".', examples=["1.36.2"])
    ]
    install_path: Annotated[
        PlainFolder,
        pydantic.Field(
            description="Where kubelet, kubeadm, kubectl and crictl lie, without blanks.", examples=["C:\\kubernetes"]
        ),
    ] = "C:\\k"
    source: Annotated[
        Literal["binaries", "node-tarball"],
        pydantic.Field(
            description="Single programs, or kubernetes-node-windows-amd64.tar.gz.", examples=["node-tarball"]
        ),
    ] = "binaries"
    service_manager: Annotated[
        Literal["windows", "nssm"],
        pydantic.Field(description="What keeps kubelet running: Windows itself, or nssm.", examples=["nssm"]),
    ] = "windows"
    feature_gates: Annotated[
        dict[GateName, bool],
        pydantic.Field(description="kubelet's feature gates.", examples=[{"WindowsHostNetwork": True}]),
    ] = {}
    kubelet_flags: Annotated[
        dict[FlagName, Line],
        pydantic.Field(
            description="Further flags of kubelet, without dashes; what kubeadm writes comes after and wins.",
            examples=[{"image-gc-high-threshold": "85"}],
        ),
    ] = {}
    pause_image: Annotated[
        ImageRef | None,
        pydantic.Field(
            description="The sandbox image; the catalogue's for this Kubernetes and Windows when left out.",
            examples=["registry.example.com/pause:3.10.2"],
        ),
    ] = None
