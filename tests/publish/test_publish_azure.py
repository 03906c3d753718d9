"""Numbering, finding and publishing on Azure: each case is a gallery, what is asked of it, and what comes of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from azure.core.exceptions import HttpResponseError
from azure.mgmt.compute.models import GalleryImageVersion

from imagegen import errors
from imagegen.providers import CloudImage, Run
from imagegen.providers.azure import gallery
from imagegen.providers.azure.publish import publish

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.console import Console
    from imagegen.plan.model import BuildPlan

CASES = sorted((Path(__file__).parent / "azure").glob("*.json"))
PLACE = ("images", "gal", "def")
BUILD = {"location": "westeurope", "resource_group": "images", "gallery": "gal", "definition": "def"}


class Versions:
    """The gallery image versions of one definition, as ARM answers; `before` and `later` replay what looks see."""

    def __init__(self, case: dict[str, Any], image_id: str, journal: Any) -> None:  # noqa: ANN401 - conftest's Journal
        self.journal = journal
        self.before: list[dict[str, Any]] = list(case.get("before", []))
        self.later: list[dict[str, Any]] = list(case.get("later", []))
        self.refusal: dict[str, Any] | None = case.get("refusal")
        self.put: dict[str, Any] | None = None
        self.known: dict[str, dict[str, Any]] = {}
        for version in case["versions"]:
            tags = {"imagegen_image_id": image_id} | version.get("tags", {})
            self.known[version["name"]] = {
                "id": f"/gal/def/versions/{version['name']}",
                "name": version["name"],
                "location": "westeurope",
                "tags": tags,
                "properties": version["properties"] | {"storageProfile": {"source": {"id": "vm"}}},
            }

    def list_by_gallery_image(self, *place: str) -> list[GalleryImageVersion]:
        assert place == PLACE
        self.journal.note("list")
        answers = copy.deepcopy(list(self.known.values()))
        for answer in answers:
            answer["properties"].pop("replicationStatus", None)
        return [GalleryImageVersion(answer) for answer in answers]

    def get(self, *place: str, expand: str) -> GalleryImageVersion:
        *definition, name = place
        assert tuple(definition) == PLACE
        assert expand == "ReplicationStatus"
        self.journal.note(f"get {name}")
        replay = self.before if self.put is None else self.later
        if replay:
            self.known[name]["properties"] |= replay.pop(0)
        return GalleryImageVersion(copy.deepcopy(self.known[name]))

    def begin_create_or_update(self, *request: Any, polling: bool) -> None:  # noqa: ANN401 - four names and a version
        *place, name, version = request
        assert tuple(place) == PLACE
        assert polling is False
        if self.refusal is not None:
            response = SimpleNamespace(
                status_code=self.refusal["status"],
                reason="",
                headers={"x-ms-request-id": "req-42"},
                text=lambda: json.dumps({"error": self.refusal}),
            )
            raise HttpResponseError(response=cast("Any", response))
        before = copy.deepcopy(self.known[name])
        self.put = json.loads(json.dumps(version.as_dict(exclude_readonly=True)))
        profile = self.put["properties"]["publishingProfile"]
        regions = [
            f"{target['name']}={target['regionalReplicaCount']}x{target.get('storageAccountType', '?')}"
            for target in profile["targetRegions"]
        ]
        self.journal.note(f"put {name} excluded={profile['excludeFromLatest']} {' '.join(regions)}")
        assert self.put["tags"] == before["tags"]
        assert self.put["properties"]["storageProfile"] == before["properties"]["storageProfile"]
        self.known[name]["properties"]["publishingProfile"] = profile


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_gallery(
    file: Path,
    make_plan: Callable[..., BuildPlan],
    console: Console,
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    case = json.loads(file.read_text())
    settings = {
        "regions": case.get("regions", []),
        "replicas": case.get("replicas", 1),
        "version": case.get("rule", "date"),
    }
    plan = make_plan("azure", BUILD, settings, case.get("kubernetes", "1.35.6"))
    versions = Versions(case, plan.image_id, journal)
    client = cast("ComputeManagementClient", SimpleNamespace(gallery_image_versions=versions))
    run = Run({}, case.get("labels", {}), case.get("started", "2026-11-18T10:00:00Z"))

    def act() -> Any:  # noqa: ANN401 - whatever JSON the case expects
        if case["verb"] == "number":
            return gallery.next_version(client, plan, run)
        if case["verb"] == "find":
            found = gallery.find_built(client, plan, run)
            return found and [found.id, found.region, found.name, found.state]
        built = CloudImage("/gal/def/versions/2026.1118.0", "westeurope", "gal/def/2026.1118.0", "available")
        published = publish(client, plan, built, console, journal.clock())
        assert {(image.id, image.name) for image in published.images} == {(built.id, built.name)}
        assert {image.state for image in published.images} == {"available"}
        return [published.version, [image.region for image in published.images], published.made]

    expected = case["expect"]
    if "error" in expected:
        with pytest.raises(errors.ImagegenError) as raised:
            act()
        error = raised.value
        assert [type(error).__name__, error.message, error.hint, list(error.details)] == expected["error"]
    else:
        assert act() == expected["result"]
    assert journal.lines == expected["calls"]
