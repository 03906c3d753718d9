"""Each variable of image-builder is answered: with a key that exists, or with the reason why there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imagegen.base.contents import PACKER
from imagegen.catalog.facts import hint_for, replacements, table
from imagegen.cli.inspection import overrides
from imagegen.config.fields import keys

VARIABLES = Path(__file__).parents[2] / "data" / "image-builder-variables.txt"
# Named by its documentation alone, or by people who mean another variable.
ALSO_NAMED = {"additional_prepull_images", "ami_name"}


def test_every_variable_is_answered_once() -> None:
    variables = [line for line in VARIABLES.read_text().splitlines() if not line.startswith("#")]
    assert set(replacements()) == {*variables, *ALSO_NAMED}
    grouped = [name for row in table("image-builder")["without_key"].values() for name in row["variables"]]
    assert len(grouped) == len(set(grouped))
    assert not set(grouped) & set(table("image-builder")["variables"])


def test_every_key_is_one_of_the_config() -> None:
    known = {key.path for key in keys()} | {f"overrides.{name}" for name in overrides()}
    known |= {f"overrides.{name}.sha256" for name in overrides()}
    assert [name for name, answer in replacements().items() if answer.key and answer.key not in known] == []
    assert [name for name, answer in replacements().items() if not answer.key and not answer.note] == []


def test_the_parts_of_an_ami_name_are_those_of_the_template() -> None:
    template = (PACKER / "aws" / "source.pkr.hcl.j2").read_text()
    name, suffix = (re.search(rf'  {local} += "(.+)"\n', template) for local in ("ami_name", "ami_suffix"))
    assert name is not None
    assert suffix is not None
    parts = {
        "name_prefix": "",
        'base["release"]': "the release",
        'versions["kubernetes"]': "the Kubernetes version",
        "local.created": "the time",
        "var.image.id": "the start of the identity",
        "uuidv4": "a random part",
    }
    used = re.findall(r"\$\{(.+?)\}(?=-|$)", f"{name[1].replace('${local.ami_suffix}', '')}{suffix[1]}")
    assert len(used) == len(parts)
    note = replacements()["ami_name"].note or ""
    for code, part in zip(used, parts, strict=True):
        assert part in code
        assert parts[part] in note


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("subscription_id", "image-builder's subscription_id is targets.azure.auth.subscription_id here"),
        (
            "disable_hypervisor",
            "image-builder's disable_hypervisor is windows.hyper_v here: reversed: true becomes hyper_v: tools, "
            "false becomes hyper_v: isolation; by default imagegen installs neither",
        ),
        (
            "community_gallery_image_id",
            "imagegen has no key for image-builder's community_gallery_image_id: imagegen starts from marketplace "
            "images only: targets.azure.base_image",
        ),
        ("goss_version", None),
        ("nobody_knows_this", ""),
    ],
)
def test_hint_says_key_and_difference(variable: str, hint: str | None) -> None:
    said = hint_for(variable)
    if hint is None:
        assert said is not None
        assert said.startswith(f"imagegen has no key for image-builder's {variable}: imagegen checks")
    else:
        assert said == (hint or None)
