"""What is of one cloud lies in that cloud's folders, and everything else names no cloud."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from imagegen.providers.registry import PROVIDERS
from tests.conftest import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

# The titles of clouds, and what their users call the things that they have there.
CLOUD = re.compile(
    r"(?<![a-z])aws|Aws|AWS|[Aa]zure|AZURE|[Aa]mazon|AMAZON|(?<![a-z0-9])[Ee]c2|EC2|gcp|GCP|(?<![A-Za-z])(ami|AMI)s?(?![A-Za-z])"
)
CONTENT = (".py", ".json", ".yml", ".yaml", ".j2", ".ps1", ".psm1", ".cmd")
ROOMS = ("imagegen", "ansible-win", "packer")
# Each with what may be named there, and why.
_ARCHIVE = "packages.aks.azure.com"
NAMED = {
    "imagegen/providers/registry.py": [f'"{name}": "imagegen.providers.{name}"' for name in PROVIDERS],
    # A feature that Windows Server itself has.
    "imagegen/rehearsal/machine/stock.py": ["AzureArcSetup"],
    # A word of wincni's own, which it reads on every cloud.
    "ansible-win/roles/cni/templates/10-wincni.conf.j2": ['"environment": "azure"'],
    "imagegen/authenticode/presets.json": [_ARCHIVE],
    # The only public archive of csi-proxy, for nodes on every cloud, and where its address was read.
    "imagegen/catalog/products.json": [_ARCHIVE, "Azure/AgentBaker"],
}


def folders_of_clouds() -> list[str]:
    """Where a cloud may be named: its provider, its stand-in, its templates."""
    return [
        f"{room}/{name}/"
        for name in PROVIDERS
        for room in ("imagegen/providers", "imagegen/rehearsal/clouds", "packer")
    ]


def general_files() -> list[Path]:
    """Examples are configs that break a rule, made of tests/rules: a config names its targets."""
    apart = (*folders_of_clouds(), "imagegen/rules/examples.json")
    files = [path for room in ROOMS for path in sorted((REPOSITORY / room).rglob("*")) if path.suffix in CONTENT]
    return [path for path in files if not path.relative_to(REPOSITORY).as_posix().startswith(apart)]


def lines_with_a_cloud(name: str, text: str) -> list[str]:
    for allowed in NAMED.get(name, ()):
        assert allowed in text, f"{name} does not name {allowed} any more"
        text = text.replace(allowed, "")
    return [f"{name}: {line.strip()}" for line in text.splitlines() if CLOUD.search(line)]


def test_no_module_role_template_or_row_names_a_cloud() -> None:
    named = []
    for file in general_files():
        name = file.relative_to(REPOSITORY).as_posix()
        named += lines_with_a_cloud(name, file.read_text(encoding="utf-8"))
    assert named == []


def test_every_kind_of_content_is_walked() -> None:
    names = {path.relative_to(REPOSITORY).as_posix() for path in general_files()}
    assert {
        *("imagegen/pipeline.py", "imagegen/catalog/windows.json", "imagegen/rehearsal/rehearse.py"),
        *("ansible-win/roles/cloudbase-init/resources.yml", "ansible-win/roles/cloudbase-init/files/first-boot.ps1"),
        *("ansible-win/roles/cloudbase-init/templates/agent-config.yml.j2", "packer/build.pkr.hcl.j2"),
        *("packer/guest/start.ps1", "packer/guest/engine.psm1"),
    } <= names
    assert set(NAMED) <= names
    for folder in folders_of_clouds():
        assert (REPOSITORY / folder).is_dir()


@pytest.mark.parametrize(
    "line",
    [
        *("when: target == 'aws'", "class OnAws:", "AWS_PROFILE", "an AMI's name", "source_ami", "amazon-ebs"),
        *("AzureNetwork", "https://learn.microsoft.com/azure/", "EC2Launch", "ec2service", "targets.gcp", "amis"),
    ],
)
def test_a_cloud_is_seen(line: str) -> None:
    assert lines_with_a_cloud("imagegen/x.py", line) == [f"imagegen/x.py: {line}"]


@pytest.mark.parametrize("line", ["it draws a line", "withdraws", "flaws", "a family", "dynamic", "tamis", "rec2"])
def test_a_word_that_looks_like_one_is_none(line: str) -> None:
    assert lines_with_a_cloud("imagegen/x.py", line) == []
