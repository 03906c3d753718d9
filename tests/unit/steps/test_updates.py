"""What the step of Windows updates makes of a config."""

from __future__ import annotations

from typing import Any

import pytest

from imagegen.base.contents import SHIPPED
from imagegen.catalog.facts import table
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.plan.resolve import cut_phases
from imagegen.settle.spec import settle
from imagegen.steps.kinds import KINDS
from imagegen.steps.model import load_steps

STEPS = load_steps(SHIPPED.step_roots)
ASKED: dict[str, Any] = {"categories": ["security", "definitions"], "kbs": ["KB5066782", "KB5066835", "KB1234567"]}


def phases(updates: dict[str, Any] | None, **more: Any) -> list[list[tuple[str, Any]]]:  # noqa: ANN401 - any section
    """Each phase's resources, with the names of their steps."""
    config = ImageConfig.model_validate(
        {
            "name": "node",
            "windows": {"release": "2022", "updates": updates},
            "kubernetes": {"version": "1.36.4"},
            "runtime": {"containerd": {"version": "2.3.4"}},
            "targets": {"aws": {"region": "us-east-1"}},
            **more,
        }
    )
    steps = evaluate_steps(settle(config, Document("config.yaml", {}, {}), "aws"), STEPS)
    kinds = ("update", "volume", "feature")
    typed = [
        (
            item,
            [(draft, KINDS[draft.kind].model_validate(draft.fields)) for draft in item.drafts if draft.kind in kinds],
        )
        for item in steps
        if item.step.name in ("updates", "system")
    ]
    return [[(placed.step.name, placed.resource) for placed in phase] for phase in cut_phases(typed)]


def only_update(updates: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401 - any section, and a resource
    (found,) = [one for _, one in phases(updates, **more)[0] if one.kind == "update"]
    return found


def test_updates_come_first_on_a_drive_with_all_its_space() -> None:
    """Windows refuses updates while a feature waits for a restart, and cumulative ones need much space (N15)."""
    names = [[(step, one.kind) for step, one in phase] for phase in phases(ASKED)]
    each = [("updates", "volume"), ("updates", "update")]
    assert names == [each, each, each, [("system", "feature")], []]
    assert [[(step, one.kind) for step, one in phase] for phase in phases(None)] == [[("system", "feature")], []]


def test_a_kb_has_the_revision_of_this_release() -> None:
    """The second is of another release, and the catalogue does not know the third."""
    found = only_update(ASKED)
    assert [(one.kb, one.ubr) for one in found.kbs] == [
        ("KB5066782", 4294),
        ("KB5066835", None),
        ("KB1234567", None),
    ]
    guids = table("updates")["categories"]
    assert found.categories == [guids["security"]["guid"], guids["definitions"]["guid"]]
    assert {one.code: one.means for one in found.codes} == table("updates")["codes"]
    assert found.rounds == STEPS["updates"].meta.rounds


@pytest.mark.parametrize(
    ("proxy", "wanted"),
    [
        (None, (None, "")),
        ({"http": "http://proxy.example.com:3128"}, (None, "")),
        ({"https": "http://proxy.example.com:3128"}, ("proxy.example.com:3128", "")),
        ({"https": "https://proxy.example.com:3128"}, (None, "")),
        (
            {"https": "http://proxy.example.com:3128", "no_proxy": ["169.254.169.254", ".corp"]},
            ("proxy.example.com:3128", "169.254.169.254;.corp"),
        ),
    ],
)
def test_winhttp_gets_the_proxy_for_https(proxy: dict[str, Any] | None, wanted: tuple[str | None, str]) -> None:
    """WinHTTP knows no proxy over TLS."""
    found = only_update(ASKED, proxy=proxy)
    assert (found.proxy, found.bypass) == wanted
