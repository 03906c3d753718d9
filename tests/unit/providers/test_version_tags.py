"""Versions of components as tags: one each while there is room, and within what a cloud and its plugin take."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.catalog.facts import limit_of
from imagegen.providers.azure.settings import Settings
from imagegen.providers.azure.tags import has_many_tags, image_tags
from imagegen.providers.tags import ImageTags, make_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Decided

TODAY = {"kubernetes": "1.36.4", "containerd": "2.3.4", "cloudbase_init": "1.1.8"}
MORE = {**TODAY, "docker": "28.5.0", "wins": "0.4.11"}
MANY = {**TODAY, **{f"component_{number:02}": "1.0.0" for number in range(40)}}
GOLDEN = Path(__file__).parents[2] / "golden"


def own_tags(count: int) -> dict[str, str]:
    return {f"tag-{number}": "" for number in range(count)}


def test_each_version_has_a_tag_of_its_own_while_there_is_room() -> None:
    assert make_tags({"team": "a"}, MORE, 6) == ImageTags(MORE, {"team": "a"})


def test_further_components_share_a_tag_where_there_is_no_room() -> None:
    assert make_tags({"team": "a"}, MORE, 5) == ImageTags(
        {"kubernetes": "1.36.4", "containerd": "2.3.4"},
        {"team": "a", "imagegen_versions": "cloudbase_init=1.1.8 docker=28.5.0 wins=0.4.11"},
    )


def test_a_single_further_component_gains_nothing_by_sharing() -> None:
    assert make_tags({}, TODAY, 0) == ImageTags(TODAY, {})


def test_no_value_is_longer_than_a_cloud_takes_and_nothing_is_lost() -> None:
    tags = make_tags({}, MANY, 10)
    assert list(tags.others) == ["imagegen_versions", *(f"imagegen_versions_{number}" for number in (2, 3, 4))]
    assert max(map(len, tags.others.values())) <= 256
    items = " ".join(tags.others.values()).split()
    assert {**tags.versions, **dict(item.split("=") for item in items)} == MANY


@pytest.mark.parametrize(
    ("versions", "config_tags", "tags", "is_for_newer_plugins"),
    [
        # imagegen's own and room for two labels are 11.
        (TODAY, 1, 3, False),
        (TODAY, 2, 3, True),
        (MORE, 0, 3, False),
        (MORE, 1, 3, False),
        # More than 15 in any case: the plugin that takes 50 is needed, and then each has a tag of its own.
        (MORE, 2, 5, True),
        (MORE, 34, 5, True),
        (MORE, 35, 3, True),
    ],
)
def test_azure_shares_tags_only_where_they_would_be_too_many(
    versions: dict[str, str], config_tags: int, tags: int, is_for_newer_plugins: bool
) -> None:
    gallery = {"resource_group": "a", "name": "b", "definition": "c"}
    settings = Settings.model_validate({"location": "westeurope", "gallery": gallery, "tags": own_tags(config_tags)})
    assert len(image_tags(settings, versions)) == config_tags + tags
    assert has_many_tags(settings, versions) == is_for_newer_plugins


@pytest.mark.parametrize("provider", ["aws", "azure"])
def test_the_tree_asks_for_what_the_cloud_takes(provider: str, decide: Callable[..., Decided]) -> None:
    decision = decide(GOLDEN / "maximal.yaml", provider).decision
    image = dataclasses.replace(decision.plan.image, versions={**decision.plan.image.versions, **MANY})
    decision = dataclasses.replace(decision, plan=dataclasses.replace(decision.plan, image=image))
    values = json.loads(pipeline.render_tree(decision)["image.auto.pkrvars.json"])["image"]
    assert {"kubernetes", "containerd"} <= set(values["versions"])
    own = 14 if provider == "aws" else 10
    assert own + len(values["versions"]) + len(values["tags"]) <= limit_of(f"{provider}_tags")["max"]
    assert any("component_39=1.0.0" in value for value in values["tags"].values())
