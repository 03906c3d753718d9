"""Numbering, finding and publishing on Azure: each case is a gallery, what is asked of it, and what comes of it."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.mgmt.compute.models import GalleryImageVersion

from imagegen.base import errors
from imagegen.base.console import Console
from imagegen.providers import CloudImage, RunFacts
from imagegen.providers.azure import gallery
from imagegen.providers.azure.publish import publish
from imagegen.providers.azure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from azure.mgmt.compute import ComputeManagementClient

    from imagegen.plan.model import BuildPlan

CASES = sorted((Path(__file__).parent / "azure").glob("*.json"))
PLACE = ("images", "gal", "def")
GALLERY = {"resource_group": "images", "name": "gal", "definition": "def"}


def refused(answer: dict[str, Any]) -> HttpResponseError:
    response = SimpleNamespace(
        status_code=answer["status"],
        reason="",
        headers={"x-ms-request-id": "req-42"},
        text=lambda: json.dumps({"error": answer}),
    )
    kind = ResourceNotFoundError if answer["status"] == 404 else HttpResponseError
    return kind(response=cast("Any", response))


class Versions:
    """The gallery image versions of one definition, as ARM answers; `before` and `later` replay what looks see.

    A look that is to fail is `{"refusal": …}`; so many updates as there are `refusals` are refused.
    """

    def __init__(self, case: dict[str, Any], image_id: str, journal: Any) -> None:  # noqa: ANN401 - conftest's Journal
        self.journal = journal
        self.before: list[dict[str, Any]] = list(case.get("before", []))
        self.later: list[dict[str, Any]] = list(case.get("later", []))
        self.refusals: list[dict[str, Any]] = list(case.get("refusals", []))
        self.put: dict[str, Any] | None = None
        self.known: dict[str, dict[str, Any]] = {}
        for version in case["versions"]:
            tags = {"imagegen_image_id": image_id, "imagegen_run_id": "20261118t100000z-1a2b3c"}
            tags |= {"imagegen_expires_at": "2026-11-18T16:00:00Z"} | version.get("tags", {})
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
            seen = replay.pop(0)
            if "refusal" in seen:
                raise refused(seen["refusal"])
            self.known[name]["properties"] |= seen
        return GalleryImageVersion(copy.deepcopy(self.known[name]))

    def begin_update(self, *request: Any, polling: bool) -> None:  # noqa: ANN401 - four names and what changes
        *place, name, change = request
        assert tuple(place) == PLACE
        assert polling is False
        body = change.as_dict()
        # Azure replaces all of the tags, and nothing else is said.
        assert body == {"tags": self.known[name]["tags"] | {"imagegen_report": body["tags"]["imagegen_report"]}}
        self.journal.note(f"patch {name} imagegen_report={body['tags']['imagegen_report']}")

    def begin_create_or_update(self, *request: Any, polling: bool) -> None:  # noqa: ANN401 - four names and a version
        *place, name, version = request
        assert tuple(place) == PLACE
        assert polling is False
        if self.refusals:
            self.journal.note(f"put {name} refused")
            raise refused(self.refusals.pop(0))
        before = copy.deepcopy(self.known[name])
        self.put = json.loads(json.dumps(version.as_dict(exclude_readonly=True)))
        profile = self.put["properties"]["publishingProfile"]
        regions = [
            f"{target['name']}={target['regionalReplicaCount']}x{target.get('storageAccountType', '?')}"
            for target in profile["targetRegions"]
        ]
        self.journal.note(f"put {name} excluded={profile['excludeFromLatest']} {' '.join(regions)}")
        # What is published does not expire; the builder's other tags stay.
        assert self.put["tags"] == {key: tag for key, tag in before["tags"].items() if key != "imagegen_expires_at"}
        assert self.put["properties"]["storageProfile"] == before["properties"]["storageProfile"]
        self.known[name]["properties"]["publishingProfile"] = profile


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_gallery(
    file: Path,
    make_plan: Callable[..., BuildPlan[Settings]],
    journal: Any,  # noqa: ANN401 - conftest's Journal
) -> None:
    case = json.loads(file.read_text())
    asked = {
        "gallery": {**GALLERY, "version": case.get("rule", "date")},
        "publish": {"regions": case.get("regions", []), "replicas": case.get("replicas", 1)},
    }
    settings = Settings.model_validate({"location": "westeurope", **asked})
    plan = make_plan("azure", settings, case.get("kubernetes", "1.35.6"), case.get("minutes", 360))
    versions = Versions(case, plan.image_id, journal)
    client = cast("ComputeManagementClient", SimpleNamespace(gallery_image_versions=versions))
    run = RunFacts({}, case.get("labels", {}), case.get("started", "2026-11-18T10:00:00Z"))
    stream = io.StringIO()
    console = Console(stream, plain=True, quiet=True)

    def shown(found: CloudImage | None) -> list[str] | None:
        if found is None:
            return None
        return [found.id, found.region, found.name, found.state, *([found.report] if found.report else [])]

    def act() -> Any:  # noqa: ANN401 - whatever JSON the case expects
        if case["verb"] == "number":
            return gallery.next_version(client, plan, run, case.get("chance", 0))
        if case["verb"] == "find":
            answer = gallery.find_built(client, plan, run)
            for failure in answer.unusable:
                console.warn(failure)
            return shown(answer.image)
        if case["verb"] == "built":
            return shown(gallery.read_built(client, plan, case["artifact"], journal.clock()))
        built = CloudImage("/gal/def/versions/2026.1118.0", "westeurope", "gal/def/2026.1118.0", "available")
        if case["verb"] == "again":
            return gallery.build_again(plan, built)
        if case["verb"] == "mark":
            return gallery.mark(client, plan, built, "rejected", journal.clock())
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
    # Without the time of day.
    assert [line.partition(" ")[2] for line in stream.getvalue().splitlines()] == expected.get("warnings", [])
