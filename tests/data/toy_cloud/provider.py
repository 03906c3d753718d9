"""The toy cloud's answers. Nobody asks for an image of it: what would need one is a bug of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pydantic

from imagegen.fetch.lock import BaseForm, LockedBase
from imagegen.providers.provider import Provider, provider
from imagegen.providers.tags import ImageTags
from toy_cloud.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping


class Place(pydantic.BaseModel):
    """Where toy builds leave things."""


def _refuse(*_: object) -> NoReturn:
    raise AssertionError("the toy cloud has no account")


def _look_up(_settings: Settings, request: Mapping[str, str], _run: object) -> LockedBase:
    return LockedBase(request=dict(request), identity={"name": request["name"]}, place={"shelf": "1"})


PROVIDER = Provider[Settings, Place](
    name="toy",
    # A tree requires a plugin. The null builder needs none, so that any which is there will do.
    plugin=provider("aws").plugin,
    builder="null",
    no_capacity=frozenset(),
    environment=frozenset(),
    traces="nothing",
    advice="",
    base_form=BaseForm({"name": "[a-z0-9-]+"}, {"shelf": "[0-9]"}),
    place_model=Place,
    base_request=lambda _settings, offered: dict(offered),
    look_up_base=_look_up,
    quick_checks=_refuse,
    thorough_checks=_refuse,
    builder_sizes=lambda _settings: ["small"],
    image_tags=lambda _settings, versions: ImageTags(versions, {}),
    source_values=lambda plan: {"street": plan.settings.street},
    find_built=_refuse,
    read_built=_refuse,
    mark=_refuse,
    build_again=_refuse,
    publish=_refuse,
    place=_refuse,
    leftovers=_refuse,
    remove=_refuse,
)
