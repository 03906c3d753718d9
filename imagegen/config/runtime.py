"""What a config says about the container runtime."""

from typing import Literal, Self

import pydantic

from imagegen.config.addresses import HttpsUrl, Registry
from imagegen.config.words import DockerVersion, Duration, Version
from imagegen.resources.model import Strict


class Containerd(Strict):
    """containerd as container runtime."""

    version: Version = pydantic.Field(description='The containerd version, quoted: "2.3.4".', examples=["2.3.4"])
    discard_unpacked_layers: bool = pydantic.Field(
        default=True,
        description="Drop an image's compressed layers once they are unpacked: saves disk.",
        examples=[False],
    )
    image_pull_progress_timeout: Duration | None = pydantic.Field(
        default=None,
        description="Give a pull up that makes no progress; containerd's own when left out.",
        examples=["10m"],
    )
    max_concurrent_downloads: int | None = pydantic.Field(
        default=None,
        description="Layers of one image pulled at a time; containerd's own when left out.",
        ge=1,
        le=50,
        examples=[5],
    )
    registry_mirrors: dict[Registry, list[HttpsUrl]] = pydantic.Field(
        default={},
        description="Where a registry's images are looked for first, in this order.",
        examples=[{"docker.io": ["https://mirror.example.com/"]}],
    )
    settings: str | None = pydantic.Field(
        default=None,
        description="Further settings as containerd's TOML, in a file that its config imports.",
        max_length=20000,
        examples=["[debug]\nlevel = 'info'\n"],
    )


class Docker(Strict):
    """Docker as container runtime."""

    version: DockerVersion = pydantic.Field(description="The Docker version, quoted.", examples=["28.5.1"])
    edition: Literal["moby", "mirantis"] = pydantic.Field(
        default="moby", description="The open build, or Mirantis' with its own licence.", examples=["mirantis"]
    )
    cri_dockerd: Version | None = pydantic.Field(
        default=None,
        description="The cri-dockerd version, which Docker needs from Kubernetes 1.24.",
        examples=["0.3.20"],
    )


class Runtime(Strict):
    """The container runtime: exactly one of them."""

    containerd: Containerd | None = pydantic.Field(default=None, description="containerd.")
    docker: Docker | None = pydantic.Field(default=None, description="Docker.")
    fake_host_network: bool = pydantic.Field(
        default=False,
        description="The NAT network named `host` that kubelet looks for on Docker nodes.",
        examples=[True],
    )

    @pydantic.model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.containerd is None) == (self.docker is None):
            raise ValueError("name exactly one runtime: containerd or docker")
        return self
