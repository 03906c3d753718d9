"""What a boot says on the terminal and in the manifest."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, cast

import pytest

from imagegen.boot.check import Check, Verdict
from imagegen.boot.node import Finding, FirstBoot
from imagegen.rehearsal.boot.booted import Boot, Image
from tests.conftest import REPOSITORY, load_today

if TYPE_CHECKING:
    from imagegen.rehearsal.boot.view import MachineNode
    from imagegen.rehearsal.machine import Machine

BASE = REPOSITORY / "tests" / "rules" / "base.yaml"
GOOD = Verdict(Check("one", "one is so", lambda _: ()), ())
BAD = Verdict(Check("two", "two is so", lambda _: ()), (Finding(text="first", row="B1"), Finding(text="second")))


def booted(machine: Machine, *, ran: str, reason: str = "", unknown: tuple[str, ...] = ()) -> Boot:
    spec = load_today(BASE, "cloudbase_init.version=1.1.8").specs["aws"]
    image, started = Image(machine, spec), FirstBoot(None, True, ran, False, True, "", False, "", (), 1, "")
    node = cast("MachineNode", types.SimpleNamespace(machine=machine, first=started))
    return Boot(image, node, (GOOD, BAD), reason, unknown, "")


@pytest.mark.parametrize(
    ("ran", "reason", "lines"),
    [
        ("", "", []),
        ("1.1.8", "", ["cloudbase-init 1.1.8 ran"]),
        ("1.1.7", "", ["cloudbase-init 1.1.7 ran, and the image has 1.1.8"]),
        ("1.1.7", "no network", ["cloudbase-init 1.1.7 ran, and the image has 1.1.8: no network"]),
    ],
)
def test_only_a_cloudbase_init_that_ran_has_a_line(aws: Machine, ran: str, reason: str, lines: list[str]) -> None:
    assert booted(aws, ran=ran, reason=reason).lines == [*lines, "one is so"]


@pytest.mark.parametrize(("unknown", "noted"), [((), {}), (("a", "b"), {"unknown": ["a", "b"]})])
def test_the_manifest_has_every_reason(aws: Machine, unknown: tuple[str, ...], noted: dict[str, list[str]]) -> None:
    boot = booted(aws, ran="1.1.8", unknown=unknown)
    assert boot.faults == [*unknown, "two: first (B1); second"]
    assert boot.failed == {**noted, "two": ["first (B1)", "second"]}
    assert boot.record() == {
        "starts": aws.boot_count,
        "cloudbase_init": "1.1.8",
        "cloudbase_init_in_image": "1.1.8",
        "passed": ["one"],
    }
