"""The name of a container image, as container runtimes read it. Pure.

https://github.com/distribution/reference: normalize.go and helpers.go. containerd stores an image under its whole name,
and so does a pod find it.
"""

import dataclasses
from typing import Final, Self

DOCKER_HUB: Final = "docker.io"
_OFFICIAL: Final = "library/"


@dataclasses.dataclass(frozen=True)
class ImageName:
    """The parts of an image's whole name."""

    registry: str
    repository: str
    tag: str
    """Empty if the name has a digest: runtimes ignore a tag beside it."""
    digest: str
    """As `sha256:` and 64 digits. Empty if the name has a tag."""

    @classmethod
    def parse(cls, reference: str) -> Self:
        """Read a reference, as a config or a pod has it."""
        named, _, digest = reference.partition("@")
        first, slash, rest = named.partition("/")
        has_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
        registry, path = (first, rest) if has_registry else (DOCKER_HUB, named)
        repository, colon, tag = path.rpartition(":") if ":" in path.rpartition("/")[2] else (path, "", "")
        if registry in (DOCKER_HUB, "index.docker.io"):
            registry = DOCKER_HUB
            repository = repository if "/" in repository else _OFFICIAL + repository
        return cls(registry, repository, "" if digest else (tag if colon else "latest"), digest)

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}{f'@{self.digest}' if self.digest else f':{self.tag}'}"

    @property
    def host(self) -> str:
        """The host whose API has the images of the registry."""
        return "registry-1.docker.io" if self.registry == DOCKER_HUB else self.registry
