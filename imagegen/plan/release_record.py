"""Makes the release record: the file on a node that says what is in its image, and from which inputs. Pure.

The record has the identity of the image. The image part of the plan therefore has the record's file without its digest:
neither the name of the config nor the version of imagegen makes another image.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

import imagegen
from imagegen.fetch.request import shown_url
from imagegen.steps.release_record import SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imagegen.plan.model import BuildPlan, PlannedResource
    from imagegen.plan.resolve import Decision

RECORD_VERSION = 1


def with_release_record(decision: Decision) -> Decision:
    """Add the record to the bundle, and its digest to the plan. Only plans with a record need that."""
    plan = decision.plan
    resources = [resource for phase in plan.image.phases for resource in phase.resources()]
    if not any(resource.fields.get("source") == SOURCE for resource in resources):
        return decision
    record = {
        "record_version": RECORD_VERSION,
        "name": plan.build.name,
        "image_id": plan.image_id,
        "provider": plan.image.provider,
        "imagegen_version": imagegen.__version__,
        "windows": plan.image.windows,
        "base_image": dict(plan.image.base),
        "versions": dict(plan.image.versions),
        "artifacts": _artifacts(plan, resources),
        "images": {
            str(resource.fields["name"]): resource.fields["digest"]
            for resource in resources
            if resource.kind == "image"
        },
    }
    data = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=True).encode() + b"\n"
    return dataclasses.replace(
        decision,
        plan=dataclasses.replace(plan, release_record=hashlib.sha256(data).hexdigest()),
        bundle={**decision.bundle, SOURCE: data},
    )


def _artifacts(plan: BuildPlan, resources: Iterable[PlannedResource]) -> dict[str, dict[str, Any]]:
    """Each artifact, with the files and the product that it brings."""
    found: dict[str, dict[str, Any]] = {
        name: {
            "url": shown_url(plan.build.downloads[name]),
            "sha256": artifact.sha256,
            "size": artifact.size,
            "files": {},
            "product": None,
        }
        for name, artifact in plan.image.artifacts.items()
    }
    for resource in resources:
        if artifact := found.get(str(resource.fields.get("artifact"))):
            artifact["files"] |= resource.downloaded
            if resource.kind == "package":
                artifact["product"] = {name: resource.fields[name] for name in ("product", "version")}
    return found
