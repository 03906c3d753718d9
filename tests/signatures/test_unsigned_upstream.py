"""What no policy can accept of each shipped config, because nobody signs it where it is published."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import REPOSITORY, load_today
from tests.golden_files import compare_golden

AGREED = Path(__file__).with_name("unsigned-upstream.txt")
POLICY = "artifacts.signatures.signers=[microsoft]"


def test_each_shipped_config_says_what_is_published_without_a_signature() -> None:
    lines = []
    for config in sorted((REPOSITORY / "configs").glob("*.yaml")):
        warnings = load_today(config, POLICY).warnings
        found = [warning for warning in warnings if warning.path == "artifacts.signatures"]
        lines += [f"# {config.name}", *(f"{one.message}\n  hint: {one.hint}" for one in found)]
    compare_golden({AGREED: "\n".join(lines) + "\n"})
