"""A node that is too slow for its cloud: cloudbase-init reports Ready only when the user data has ended."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.user_data import make_user_data
from tests.e2e.boot_support import boot, capture

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.rehearsal.boot.user_data import Join, UserData
    from imagegen.rehearsal.machine.windows import Machine

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Machine]:
    return {target: capture(target, tmp_path_factory.mktemp(target)) for target in ("aws", "azure")}


def sleep(seconds: int) -> Callable[[Join], UserData]:
    """User data whose last command takes so long."""

    def make(join: Join) -> UserData:
        own = make_user_data(join)
        line = f'  - "powershell -Command \\"Start-Sleep -Seconds {seconds}\\""\n'
        return dataclasses.replace(own, text=own.text + line.encode())

    return make


@pytest.mark.parametrize(
    ("target", "seconds", "fault"),
    [
        ("azure", 2300, ""),
        ("azure", 2400, "ready: the cloud says: OSProvisioningTimedOut"),
        ("azure", 86_400, "ready: the cloud says: OSProvisioningTimedOut"),
        ("aws", 86_400, ""),
    ],
)
def test_a_node_that_reports_too_late_fails_as_on_its_cloud(
    images: dict[str, Machine], tmp_path: Path, target: str, seconds: int, fault: str
) -> None:
    faults = boot(images[target], target, tmp_path, sleep(seconds)).faults
    assert len(faults) == bool(fault), faults
    assert "".join(faults).startswith(fault)
    assert not fault or "and Azure waits 2400 seconds" in faults[0]
