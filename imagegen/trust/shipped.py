"""Reads the files that imagegen brings for a target: scripts and templates. Touches the folders of the packages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from imagegen.base.contents import read_folder
from imagegen.providers.registry import provider_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Sources:
    """The scripts of the engine and of the cloud by their paths. Those of `boot_names` the cloud's own agent runs when
    the builder starts: it gets them as text, before any policy is in force."""

    guest: Mapping[str, bytes]
    scripts: Mapping[str, bytes]
    boot_names: Collection[str]


@dataclasses.dataclass(frozen=True)
class Shipped:
    """What imagegen brings for a target: the engine's files, the scripts by their paths, and the tree's templates."""

    guest: Mapping[str, bytes]
    scripts: Mapping[str, bytes]
    helpers: Mapping[str, bytes]
    """Scripts that no image has seen."""
    templates: Mapping[str, str]

    def to_sign(self, boot_names: Collection[str]) -> Sources:
        """The scripts of which an operator can sign copies."""
        return Sources(self.guest, {**self.scripts, **self.helpers}, boot_names)

    def signed(self, take: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]) -> Shipped:
        """The same with signed copies, which `take` puts in the place of scripts."""
        return Shipped(take(self.guest), take(self.scripts), take(self.helpers), self.templates)


def read_shipped(packer: Path, cloud: str) -> Shipped:
    """Read what the packages of imagegen and of the provider have for a target of a cloud."""
    shipped, guest = packer / cloud, read_folder(packer / "guest")
    # The templates and scripts of a provider may be inside its own package.
    own = shipped if shipped.is_dir() else provider_folder(cloud) / "packer"
    scripts, sources = (
        {f"{cloud}/{path}": data for path, data in read_folder(own, pattern).items()} for pattern in ("*.ps1", "*.j2")
    )
    scripts["start.ps1"] = guest.pop("start.ps1")
    helpers = {name: guest.pop(name) for name in ("logs.ps1",)}
    templates = {path: text.decode() for path, text in {**read_folder(packer, "*.j2"), **sources}.items()}
    return Shipped(guest, scripts, helpers, templates)
