"""The sizes whose builder can have a fast disk, and the rule about the others. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.providers.azure.settings import Settings
from imagegen.rules.rule import WARNING, Finding, TargetRule

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec


def has_premium_storage(size: str) -> bool:
    """Whether a builder of this size can have a disk in premium storage: the name of the size says so."""
    return re.fullmatch(table("azure-sizes")["premium_storage"]["pattern"], size.lower()) is not None


@TargetRule(Settings)("azure-size-premium", WARNING, "The builder's sizes should support premium storage")
def azure_size_premium(target: Spec[Settings]) -> list[Finding]:
    return [
        Finding(
            ("vm_sizes", index),
            f"{size} has no premium storage: the builder would run on a hard disk, and the build would take longer",
            "choose a size with an s after its number, for example Standard_D4s_v5",
        )
        for index, size in enumerate(target.settings.vm_sizes)
        if not has_premium_storage(size)
    ]
