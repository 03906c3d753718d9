"""`make losses`: takes each resource of each variant away, builds, boots, and compares with tests/data/losses.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.base.lines import joined
from tests.e2e.losses_support import VARIANTS, find_losses, resources
from tests.e2e.test_losses import ROWS, Row, is_listed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.e2e

UNSEEN = {one: name for name, variant in VARIANTS.items() for one in resources(variant) if is_listed(one)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.variant}-{row.resource}")
def test_a_loss_has_its_name(row: Row, tmp_path: Path) -> None:
    losses = find_losses(VARIANTS[row.variant], tmp_path, row.resource)
    assert any(loss.startswith(row.loss) for loss in losses), joined(losses)


@pytest.mark.parametrize("resource", UNSEEN)
def test_nothing_but_a_listing_shows_it(resource: str, tmp_path: Path) -> None:
    """If something does, the row is a loss: write it to the table."""
    assert find_losses(VARIANTS[UNSEEN[resource]], tmp_path, resource) == []
