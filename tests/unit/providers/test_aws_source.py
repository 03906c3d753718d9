"""Every key of AWS' settings: the attribute of Packer's plugin that it becomes, and no other."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pydantic
import pytest

from imagegen.base.contents import PACKER
from imagegen.base.templating import render_text
from imagegen.providers.aws import images, provider, source
from imagegen.providers.aws.rules import AMI_SUFFIX
from imagegen.providers.aws.settings import Settings
from tests.source_block import NULL, source_attributes

if TYPE_CHECKING:
    from imagegen.plan.model import BuildPlan

REPOSITORY = Path(__file__).parents[3]
ATTRIBUTES = json.loads((REPOSITORY / "tests/data/packer-plugin-attributes.json").read_bytes())
TEMPLATE = (PACKER / "aws" / "source.pkr.hcl.j2").read_text()
AMI = "ami-0123456789abcdef0"
PLAIN: dict[str, Any] = {"region": "us-east-1", "network": {"allowed_cidrs": ["192.0.2.0/24"]}}
ROLE = {"role_arn": "arn:aws:iam::111122223333:role/images"}
DISK = "launch_block_device_mappings"
OFFERED = {"name": "Windows_Server-2022-English-Core-Base-*"}


def values_of(asked: dict[str, Any]) -> dict[str, Any]:
    plan = SimpleNamespace(settings=Settings.model_validate(asked), build=SimpleNamespace(base_place={"ami_id": AMI}))
    return source.source_values(cast("BuildPlan[Settings]", plan))


def attributes(values: dict[str, Any]) -> set[str]:
    """`name = value` with the value that Packer's plugin will see."""
    seen = source_attributes(render_text(TEMPLATE, {"source": values}), "aws", values)
    return {f"{name} = {value}" for name, value in seen.items() if value != NULL}


def network(**asked: object) -> dict[str, Any]:
    return {"network": {**PLAIN["network"], **asked}}


# What is asked for beside the plain config: the attributes that come, and the ones that go.
CASES: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "region": ({"region": "eu-west-1"}, {'region = "eu-west-1"'}, {'region = "us-east-1"'}),
    "spot": (
        {"spot": {}},
        {
            'spot_price = "auto"',
            "spot_instance_types = [local.instance_type]",
            "spot_tags = local.builder_tags",
            "fleet_tags = local.builder_tags",
        },
        {"instance_type = local.instance_type"},
    ),
    "spot.max_price": (
        {"spot": {"max_price": "0.25"}},
        {
            'spot_price = "0.25"',
            "spot_instance_types = [local.instance_type]",
            "spot_tags = local.builder_tags",
            "fleet_tags = local.builder_tags",
        },
        {"instance_type = local.instance_type"},
    ),
    "network.vpc_id": (
        network(vpc_id="vpc-01234567", subnet_id="subnet-01234567"),
        {'vpc_id = "vpc-01234567"', 'subnet_id = "subnet-01234567"'},
        set(),
    ),
    "network.subnet_id": (network(subnet_id="subnet-01234567"), {'subnet_id = "subnet-01234567"'}, set()),
    "network.security_group_ids": (
        {"network": {"security_group_ids": ["sg-01234567"]}},
        {'security_group_ids = ["sg-01234567"]'},
        {'temporary_security_group_source_cidrs = ["192.0.2.0/24"]'},
    ),
    "network.allowed_cidrs": (
        network(allowed_cidrs=["198.51.100.0/24"]),
        {'temporary_security_group_source_cidrs = ["198.51.100.0/24"]'},
        {'temporary_security_group_source_cidrs = ["192.0.2.0/24"]'},
    ),
    "network.public_address": (network(public_address=True), {"associate_public_ip_address = true"}, set()),
    "network.reach_by": (network(reach_by="private"), {'ssh_interface = "private_ip"'}, set()),
    "iam_instance_profile": ({"iam_instance_profile": "builder"}, {'iam_instance_profile = "builder"'}, set()),
    "disk.size_gb": ({"disk": {"size_gb": 100}}, {f"{DISK}.volume_size = 100"}, {f"{DISK}.volume_size = 50"}),
    "disk.type": ({"disk": {"type": "gp2"}}, {f'{DISK}.volume_type = "gp2"'}, {f'{DISK}.volume_type = "gp3"'}),
    "disk.iops": ({"disk": {"iops": 4000}}, {f"{DISK}.iops = 4000"}, set()),
    "disk.throughput": ({"disk": {"throughput": 250}}, {f"{DISK}.throughput = 250"}, set()),
    "encryption": ({"encryption": {}}, {f"{DISK}.encrypted = true"}, set()),
    "encryption.kms_key": (
        {"encryption": {"kms_key": "alias/images"}},
        {f"{DISK}.encrypted = true", f'{DISK}.kms_key_id = "alias/images"'},
        set(),
    ),
    "require_imds_tokens": ({"require_imds_tokens": True}, {'imds_support = "v2.0"'}, set()),
    "auth.profile": ({"auth": {"profile": "images"}}, {'profile = "images"'}, set()),
    "auth.assume_role": (
        {"auth": {"assume_role": ROLE}},
        {f'assume_role.role_arn = "{ROLE["role_arn"]}"', 'assume_role.session_name = "imagegen"'},
        set(),
    ),
    "auth.assume_role.session_name": (
        {"auth": {"assume_role": {**ROLE, "session_name": "nightly"}}},
        {f'assume_role.role_arn = "{ROLE["role_arn"]}"', 'assume_role.session_name = "nightly"'},
        set(),
    ),
}


@pytest.mark.parametrize("key", CASES)
def test_key_becomes_its_attributes_and_changes_no_other(key: str) -> None:
    asked, come, go = CASES[key]
    plain, now = attributes(values_of(PLAIN)), attributes(values_of({**PLAIN, **asked}))
    assert (now - plain, plain - now) == (come, go)


def test_every_builder_requires_session_tokens_and_is_known_by_its_tags() -> None:
    """Whatever is asked for: otherwise a program on the builder could take its credentials by one request, and no
    janitor would find its disks."""
    for asked in (PLAIN, together(EVERYTHING)):
        assert {
            'metadata_options.http_endpoint = "enabled"',
            'metadata_options.http_tokens = "required"',
            "metadata_options.http_put_response_hop_limit = 1",
            f"{DISK}.delete_on_termination = true",
            "run_tags = local.builder_tags",
            "run_volume_tags = local.builder_tags",
            "snapshot_tags = local.image_tags",
            "tags = local.image_tags",
        } <= attributes(values_of(asked))


def name_of_an_image(identity: str, random: str, second: str = "20261118101112") -> str:
    """What Packer makes of the template's ami_name; an expression that is none of these is a KeyError."""
    values = {
        "var.aws.name_prefix": "capa-ami",
        'var.image.base["release"]': "2022",
        'var.image.versions["kubernetes"]': "1.36.4",
        'formatdate("YYYYMMDDhhmmss", local.created)': second,
        "substr(var.image.id, 0, 8)": identity[:8],
        "substr(uuidv4(), 0, 6)": random[:6],
    }
    lines = dict(re.findall(r'^  (\w+) += "(.*)"$', TEMPLATE, re.MULTILINE))
    name = lines["ami_name"].replace("${local.ami_suffix}", lines["ami_suffix"])
    return re.sub(r"\$\{(.+?)\}", lambda match: values[match[1]], name)


def test_the_names_of_two_builds_of_one_second_differ_and_cluster_api_finds_both() -> None:
    one, another, again = (
        name_of_an_image("0123456789abcdef", "4ba1f0de"),
        name_of_an_image("fedcba9876543210", "4ba1f0de"),
        name_of_an_image("0123456789abcdef", "9cc27d35"),
    )
    assert one == "capa-ami-windows-2022-v1.36.4-20261118101112-01234567-4ba1f0"
    assert len({one, another, again}) == 3
    assert one[-len(AMI_SUFFIX) :] == "20261118101112-01234567-4ba1f0"
    # Cluster API's AWS provider: DefaultAmiNameFormat in pkg/cloud/services/ec2/ami.go, and EC2's filters know * and ?.
    for base_os, found in (("windows-2022", True), ("windows-2025", False)):
        assert fnmatch.fnmatchcase(one, f"capa-ami-{base_os}-?1.36.4-*") == found
    assert not fnmatch.fnmatchcase(one, "capa-ami-windows-2022-?1.36.40-*")


def test_keys_that_become_something_else_than_an_attribute() -> None:
    asked = {
        **PLAIN,
        "instance_types": ["m6i.large", "m5.large"],
        "name_prefix": "platform-ami",
        "tags": {"team": "platform"},
        "base_image": {"name": "hardened-*"},
        "encryption": {"region_kms_keys": {"us-west-2": "alias/images"}},
        "publish": {"regions": ["us-west-2"]},
    }
    settings, plain = Settings.model_validate(asked), Settings.model_validate(PLAIN)
    values = values_of(asked)
    assert (values["instance_types"], values["name_prefix"]) == (["m6i.large", "m5.large"], "platform-ami")
    assert 'ami_name      = "${var.aws.name_prefix}-windows-' in TEMPLATE
    assert "var.aws.instance_types[0] : var.builder_size" in TEMPLATE
    assert settings.build_json()["tags"] == {"team": "platform"}
    assert images.base_request(settings, OFFERED) == {"region": "us-east-1", "name": "hardened-*", "owner": "self"}
    assert images.base_request(plain, OFFERED) == {
        "region": "us-east-1",
        "name": OFFERED["name"],
        "owner": "amazon",
    }
    keys = {"kms_keys": {"us-west-2": "alias/images"}}
    assert settings.publish_json() == {"regions": ["us-west-2"], "encryption": keys}
    assert plain.publish_json() == {"regions": [], "encryption": None}
    assert not {"publish", "base_image"} & set(settings.build_json())


def together(keys: tuple[str, ...]) -> dict[str, Any]:
    asked: dict[str, Any] = {**PLAIN}
    for key in keys:
        for name, value in CASES[key][0].items():
            asked[name] = {**asked[name], **value} if isinstance(asked.get(name), dict) else value
    if "security_group_ids" in asked["network"]:
        asked["network"].pop("allowed_cidrs", None)
    return asked


EVERYTHING = tuple(key for key in CASES if key not in ("spot", "region", "disk.type"))


def test_what_is_declared_is_given_and_used() -> None:
    declared = re.findall(r"^    ([a-z_]+) += (?:string|number|bool|list\(string\))$", TEMPLATE, re.MULTILINE)
    for keys in ((), *((key,) for key in CASES), EVERYTHING):
        assert sorted(declared) == sorted(values_of(together(keys))), keys
    assert set(re.findall(r"var\.aws\.([a-z_]+)", TEMPLATE)) == set(declared)


def test_the_template_is_the_same_for_every_config_and_names_what_the_oldest_plugin_has() -> None:
    assert render_text(TEMPLATE, {}) == TEMPLATE
    block = TEMPLATE[TEMPLATE.index('source "amazon-ebs"') :]
    used = set(re.findall(r'^  (?:dynamic ")?([a-z_]+)(?: +=|"? \{)', block, re.MULTILINE))
    assert {"assume_role", "metadata_options", "spot_tags", "region"} <= used
    known = ATTRIBUTES["amazon-ebs"]["Config"]
    assert {name: known[name]["since"] for name in used} == dict.fromkeys(used, provider.PROVIDER.plugin.lowest)
    assert not [name for name in used if "until" in known[name]]


def test_everything_at_once_is_seen() -> None:
    come = set.union(*(come for key, (_, come, _) in CASES.items() if key in EVERYTHING))
    replaced = {'assume_role.session_name = "imagegen"', *CASES["network.security_group_ids"][2]}
    seen = attributes(values_of(together(EVERYTHING)))
    replaced |= CASES["network.allowed_cidrs"][1]
    assert come - replaced <= seen
    assert not seen & replaced


@pytest.mark.parametrize(
    "asked",
    [
        {"spot": {"max_price": "0.00"}},
        {"encryption": {"kms_key": "images"}},
        {"encryption": {"region_kms_keys": {"us-west-2": "arn:aws:kms:us-west-2:111122223333:images"}}},
    ],
    ids=str,
)
def test_what_the_plugin_would_refuse_is_refused_before(asked: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError, match="should match pattern"):
        Settings.model_validate({**PLAIN, **asked})


@pytest.mark.parametrize(
    ("region", "key"),
    [
        ("us-west-2", "alias/images"),
        ("us-west-2", "1234abcd-12ab-34cd-56ef-1234567890ab"),
        ("us-west-2", "mrk-1234abcd12ab34cd56ef1234567890ab"),
        ("us-west-2", "arn:aws:kms:us-west-2:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"),
        ("us-gov-west-1", "arn:aws-us-gov:kms:us-gov-west-1:111122223333:alias/images"),
    ],
)
def test_every_way_to_name_a_key_is_taken(region: str, key: str) -> None:
    assert values_of({**PLAIN, "region": region, "encryption": {"kms_key": key}})["kms_key"] == key
