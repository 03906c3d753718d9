"""What a config says about the container runtime."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from imagegen.config.words import Duration, HttpsUrl, Registry, Version
from imagegen.resources.model import Strict


class Containerd(Strict):
    """containerd as container runtime."""

    version: Annotated[
        Version, pydantic.Field(description='The containerd version, quoted: "2.3.4".', examples=["2.3.4"])
    ]
    discard_unpacked_layers: Annotated[
        bool,
        pydantic.Field(
            description="Drop an image's compressed layers once they are unpacked: saves disk.", examples=[False]
        ),
    ] = True
    image_pull_progress_timeout: Annotated[
        Duration | None,
        pydantic.Field(
            description="Give a pull up that makes no progress; containerd's own when left out.", examples=["10m"]
        ),
    ] = None
    max_concurrent_downloads: Annotated[
        int | None,
        pydantic.Field(
            description="Layers of one image pulled at a time; containerd's own when left out.",
            ge=1,
            le=50,
            examples=[5],
        ),
    ] = None
    registry_mirrors: Annotated[
        dict[Registry, list[HttpsUrl]],
        pydantic.Field(
            description="Where a registry's images are looked for first, in this order.",
            examples=[{"docker.io": ["https://mirror.example.com/"]}],
        ),
    ] = {}
    settings: Annotated[
        str | None,
        pydantic.Field(
            description="Further settings as containerd's TOML, in a file that its config imports.",
            max_length=20000,
            examples=["[debug]\nlevel = 'info'\n"],
        ),
    ] = None


class Docker(Strict):
    """Docker as container runtime."""

    version: Annotated[Version, pydantic.Field(description="The Docker version, quoted.", examples=["28.5.1"])]
    edition: Annotated[
        Literal["moby", "mirantis"],
        pydantic.Field(description="The open build, or Mirantis' with its own licence.", examples=["mirantis"]),
    ] = "moby"
    cri_dockerd: Annotated[
        Version | None,
        pydantic.Field(
            description="The cri-dockerd version, which Docker needs from Kubernetes 1.24.", examples=["0.3.20"]
        ),
    ] = None


class Runtime(Strict):
    """The container runtime: exactly one of them."""

    containerd: Annotated[Containerd | None, pydantic.Field(description="containerd.")] = None
    docker: Annotated[Docker | None, pydantic.Field(description="Docker.")] = None
    fake_host_network: Annotated[
        bool,
        pydantic.Field(
            description="The NAT network named `host` that kubelet looks for on Docker nodes.", examples=[True]
        ),
    ] = False

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Runtime:
        if (self.containerd is None) == (self.docker is None):
            raise ValueError("name exactly one runtime: containerd or docker")
        return self
