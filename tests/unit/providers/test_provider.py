"""What each cloud's record holds, and what it leaves out."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pydantic
import pytest

import imagegen.providers
from imagegen.base.contents import PACKER
from imagegen.providers.provider import Provider, provider
from imagegen.providers.registry import PROVIDERS

FOLDER = Path(imagegen.providers.__file__).parent
REQUIRED = {
    field.name
    for field in dataclasses.fields(Provider)
    if field.default is field.default_factory is dataclasses.MISSING
}
OPTIONAL = {field.name for field in dataclasses.fields(Provider)} - REQUIRED


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_record_names_its_cloud_and_answers_what_every_cloud_is_asked(name: str) -> None:
    cloud = provider(name)
    assert cloud.name == name
    said = {field.name: getattr(cloud, field.name) for field in dataclasses.fields(cloud)}
    assert {field for field, value in said.items() if not value} <= OPTIONAL
    assert issubclass(cloud.place_model, pydantic.BaseModel)
    assert re.findall(cloud.traces, "nothing that Packer made") == []
    assert provider(name) is cloud


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_function_takes_as_many_arguments_as_it_is_asked_with(name: str) -> None:
    for field in dataclasses.fields(Provider):
        function: Any = getattr(provider(name), field.name)
        asked = re.match(r"Callable\[\[(.*)\], ", str(field.type))
        if asked and function:
            count = len(re.sub(r"\[[^\[\]]*\]", "", asked[1]).split(", "))
            inspect.signature(function).bind(*range(count))


def test_what_a_cloud_need_not_answer_is_none() -> None:
    assert {name for name in OPTIONAL if getattr(provider("aws"), name)} == {"boot_files"}
    assert {name for name in OPTIONAL if not getattr(provider("azure"), name)} == {"boot_files"}


@pytest.mark.parametrize("name", PROVIDERS)
def test_the_folder_of_templates_holds_what_the_record_names(name: str) -> None:
    cloud, folder = provider(name), PACKER / name
    assert f'source "{cloud.builder}" "image"' in (folder / "source.pkr.hcl.j2").read_text()
    assert [script for script in cloud.boot_files if not (folder / script).is_file()] == []


def test_without_a_word_of_its_own_every_build_needs_the_lowest_plugin() -> None:
    aws = provider("aws")
    assert aws.plugin_for(None, {}) == aws.plugin  # type: ignore[arg-type]  # they are not looked at
    newer = dataclasses.replace(aws, plugin_since=lambda _, versions: f"9.0.{versions['a']}")
    assert newer.plugin_for(None, {"a": "3"}).lowest == "9.0.3"  # type: ignore[arg-type]  # as above


def test_no_function_of_a_provider_ignores_what_it_is_given() -> None:
    told = [path for path in FOLDER.rglob("*.py") if "noqa: ARG" in path.read_text()]
    assert told == []
