"""What administrators do on a node that came up: the commands of the operator guide are those that a boot runs."""

from __future__ import annotations

import re

from imagegen.rehearsal.boot.upkeep import UPGRADE
from tests.conftest import REPOSITORY


def test_a_boot_upgrades_its_node_with_the_commands_of_the_operator_guide() -> None:
    text = (REPOSITORY / "docs" / "operator-guide.md").read_text(encoding="utf-8")
    [block] = [lines for lines in re.findall(r"(?s)```powershell\n(.*?)```", text) if "upgrade node" in lines]
    assert block.splitlines() == ["Set-Location C:\\", *UPGRADE]
