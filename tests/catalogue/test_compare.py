"""`make catalogue` finds rows that differ from what the projects say."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest

from imagegen.catalog.facts import table
from tests.catalogue import compare as catalogue

ANSWERS = Path(__file__).parent / "answers"
# A path to a row, what it said once, and the line that must be printed.
OUTDATED: tuple[tuple[str, str, Any, str], ...] = (
    ("windows", "releases.annual.end_of_life", "2025-10-24", "windows.json: annual: end_of_life is 2025-10-24, but"),
    ("windows", "releases.2022.mainstream_end", "2026-10-01", "windows.json: 2022: mainstream_end is 2026-10-01, but"),
    ("kubernetes", "minors.1~36.latest_patch", "1.36.3", "1.36: latest_patch is 1.36.3, but the newest tag is 1.36.4"),
    ("kubernetes", "minors.1~29.latest_patch", "1.29.14", "1.29: latest_patch is 1.29.14, but the newest tag is 1.29"),
    ("kubernetes", "minors.1~36.released", "2026-05-22", "1.36: released is 2026-05-22, but the tag 1.36.0 is of"),
    ("kubernetes", "minors.1~36.end_of_life", "2028-06-28", "1.36: end_of_life is 2028-06-28, but endoflife.date has"),
    ("kubernetes", "minors.1~22.crictl", "1.22.0", "1.22: crictl is 1.22.0, but the newest tag is 1.22.1"),
    ("cni", "plugins.calico.newest", "3.31.0", "cni.json: calico: newest is 3.31.0, but the newest tag is 3.32.1"),
    (
        "containerd",
        "lines.1~7.newest_patch",
        "1.7.34",
        "containerd.json: 1.7: newest_patch is 1.7.34, but there is 1.7",
    ),
    ("containerd", "lines.2~3.end_of_life", "2027-04-30", "containerd.json: 2.3: end_of_life is 2027-04-30, but"),
    ("cloudbase-init", "versions.1~1~4.released", "2023-03-31", "1.1.4: released is 2023-03-31, but its tag is of"),
    ("cloudbase-init", "versions.1~1~8.newest", False, "cloudbase-init.json: 1.1.8: newest is False, but"),
    ("cloudbase-init", "versions.1~1~5", None, "cloudbase-init.json: there is no row for 1.1.5"),
    ("kubelet", "flags.seccomp-profile-root", None, "kubelet.json: seccomp-profile-root: last is None, but"),
    ("kubelet", "flags.non-masquerade-cidr.last", "1.24", "kubelet.json: non-masquerade-cidr: last is 1.24, but"),
)


def without_minors_that_no_answer_has(found: list[str]) -> list[str]:
    """Without the lines about tags that the small answers of this test leave out."""
    return [line for line in found if "but there is no tag of" not in line]


def test_the_catalogue_agrees_with_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(catalogue.COMPARISONS, "network plugins")
    found, missing = catalogue.compare(ANSWERS)
    assert without_minors_that_no_answer_has(found) == []
    assert missing == []


@pytest.mark.parametrize(
    ("name", "row", "value", "line"), OUTDATED, ids=[f"{name}-{row}" for name, row, *_ in OUTDATED]
)
def test_an_outdated_row_is_printed(
    name: str, row: str, value: object, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(ANSWERS, tmp_path / "answers")
    # Only Calico's row is compared here.
    for project, plugin in (("flannel", "flannel"), ("plugins", "win-bridge")):
        newest = table("cni")["plugins"][plugin]["newest"]
        (tmp_path / "answers" / "tags" / f"{project}.txt").write_text(f"0\trefs/tags/v{newest}\n")
    outdated = copy.deepcopy(table(name))
    *parents, last = (part.replace("~", ".") for part in row.split("."))
    place = outdated
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    monkeypatch.setattr(catalogue, "table", lambda wanted: outdated if wanted == name else table(wanted))
    (printed,) = without_minors_that_no_answer_has(catalogue.compare(tmp_path / "answers")[0])
    assert line in printed


def test_a_new_minor_has_no_row(tmp_path: Path) -> None:
    (tmp_path / "tags").mkdir()
    (tmp_path / "tags" / "kubernetes.txt").write_text("0\trefs/tags/v1.99.0\n0\trefs/tags/v1.99.1-rc.0\n")
    assert "kubernetes.json: there is no row for 1.99" in catalogue.compare(tmp_path)[0]


def test_a_missing_answer_is_named(tmp_path: Path) -> None:
    found, missing = catalogue.compare(tmp_path)
    assert found == []
    assert len(missing) == len(catalogue.COMPARISONS)
    assert missing[0] == f"Kubernetes: {tmp_path / 'tags' / 'kubernetes.txt'} does not exist"
