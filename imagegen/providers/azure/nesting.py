"""The rule about the VM sizes that can run Hyper-V. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.providers.azure.settings import Settings
from imagegen.providers.shared_rules import HYPER_V_SIZE
from imagegen.rules.rule import Finding, TargetRule

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec


@TargetRule(Settings)(*HYPER_V_SIZE)
def hyper_v_size(target: Spec[Settings]) -> Iterator[Finding]:
    """A size that is not in the catalogue may be one that can."""
    if target.config.windows.hyper_v != "isolation":
        return
    rows = table("nesting")["cannot"]["azure"]
    for index, size in enumerate(target.settings.vm_sizes):
        if row := next((row for row in rows if re.fullmatch(row["pattern"], size.lower())), None):
            yield Finding(
                ("vm_sizes", index),
                f"{size} ({row['note']}) does not let Windows start a hypervisor, which Hyper-V isolation needs",
                "choose another size, for example Standard_D4s_v5, or write hyper_v: tools",
            )
