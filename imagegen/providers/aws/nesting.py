"""The rule about the instance types that can run Hyper-V. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from imagegen.catalog.facts import table
from imagegen.providers.aws.settings import Settings
from imagegen.providers.shared_rules import HYPER_V_SIZE
from imagegen.rules.rule import Finding, TargetRule

if TYPE_CHECKING:
    from imagegen.settle.spec import Spec


@TargetRule(Settings)(*HYPER_V_SIZE)
def hyper_v_size(target: Spec[Settings]) -> Iterator[Finding]:
    if target.config.windows.hyper_v != "isolation":
        return
    rows = table("nesting")["can"]["aws"]
    for index, kind in enumerate(target.settings.instance_types):
        if not any(re.fullmatch(row["pattern"], kind) for row in rows):
            yield Finding(
                ("instance_types", index),
                f"{kind} does not let Windows start a hypervisor, which Hyper-V isolation needs",
                "choose a type of C8i, M8i or R8i, for example m8i.large, or write hyper_v: tools",
            )
