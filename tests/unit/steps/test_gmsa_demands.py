"""What a node loses without each resource of the step gmsa."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base import contents
from imagegen.config.model import ImageConfig
from imagegen.config.yaml import Document
from imagegen.plan.context import evaluate_steps
from imagegen.rehearsal.releases import find_published
from imagegen.settle.spec import settle
from imagegen.steps.model import load_steps

if TYPE_CHECKING:
    from imagegen.steps.evaluate import EvaluatedStep

STEPS = load_steps(contents.SHIPPED.step_roots)
FOLDER = r"C:\k\gmsa"
POWERSHELL = r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe"
SCRIPT = rf"-NoProfile -NonInteractive -ExecutionPolicy Bypass -File {FOLDER}\register-plugin.ps1"


def steps_of(target: str, gmsa: dict[str, Any] | None, **asked: Any) -> list[EvaluatedStep]:  # noqa: ANN401 - any section
    config = {
        "name": "node",
        "windows": {"release": "2022"},
        "kubernetes": {"version": "1.36.4"},
        "runtime": {"containerd": {"version": "2.3.4"}},
        "targets": {
            "aws": {"region": "us-east-1"},
            "azure": {"location": "eastus2", "gallery": {"resource_group": "a", "name": "b", "definition": "c"}},
        },
        "gmsa": gmsa,
        **asked,
    }
    spec = settle(ImageConfig.model_validate(config), Document("config.yaml", {}, {}), target)
    return [step for step in evaluate_steps(spec, STEPS) if step.step.name == "gmsa"]


def fields(kind: str) -> list[dict[str, Any]]:
    (step,) = steps_of("azure", {})
    return [draft.fields for draft in step.drafts if draft.kind == kind]


@pytest.mark.parametrize(("target", "gmsa", "count"), [("azure", {}, 1), ("azure", None, 0), ("aws", {}, 0)])
def test_only_one_cloud_has_the_plugin(target: str, gmsa: dict[str, Any] | None, count: int) -> None:
    assert len(steps_of(target, gmsa)) == count


@pytest.mark.parametrize(("gmsa", "version"), [({}, "1.1.5"), ({"version": "1.1.4"}, "1.1.4")])
def test_the_plugin_comes_from_its_archive(gmsa: dict[str, Any], version: str) -> None:
    own = "https://artifacts.example.com/gmsa.zip"
    public = f"https://packages.aks.azure.com/ccgakvplugin/v{version}/binaries/windows-gmsa-ccgakvplugin-v{version}.zip"
    for overrides, url in (({}, public), ({"gmsa_keyvault_url": own}, own)):
        (step,) = steps_of("azure", gmsa, overrides=overrides)
        request = step.requests["gmsa-plugin"]
        assert (request.url, request.form) == (url, "archive")
        assert step.components == (("gmsa", version),)
        published = find_published(step.step, request)
        assert published is not None
        members = {draft.fields["member"] for draft in step.drafts if draft.kind == "extract"}
        assert members == set(published.release.members)


@pytest.mark.parametrize(
    ("shown", "is_planned"),
    [
        ("dll=C:\\Windows\\System32\\CCGAKVPlugin.dll\r\nlisted=True\r\nrestored=True", True),
        ("dll=C:\\WINDOWS\\system32\\ccgakvplugin.dll\r\nlisted=True\r\nrestored=True", True),
        ("dll=\r\nlisted=True\r\nrestored=True", False),
        ("dll=C:\\Windows\\System32\\CCGAKVPlugin.dll.old\r\nlisted=True\r\nrestored=True", False),
        ("dll=C:\\Windows\\System32\\CCGAKVPlugin.dll\r\nlisted=False\r\nrestored=True", False),
        ("dll=C:\\Windows\\System32\\CCGAKVPlugin.dll\r\nlisted=True\r\nrestored=False", False),
    ],
)
def test_a_registration_that_is_not_whole_is_made_again(shown: str, is_planned: bool) -> None:
    expressions = fields("command")[0]["unless"]["matches"]
    assert all(re.search(expression, shown) for expression in expressions) is is_planned


def test_the_events_of_the_plugin_have_their_texts() -> None:
    for command, manifest, source in zip(
        fields("command")[1:],
        ("CCGEvents.man", "CCGAKVPluginEvents.man"),
        ("Microsoft-Windows-Containers-CCG", "Microsoft-AKSGMSAPlugin"),
        strict=True,
    ):
        assert command["program"] == r"C:\Windows\System32\wevtutil.exe"
        assert command["arguments"] == rf"im {FOLDER}\{manifest}"
        assert command["unless"]["arguments"] == "ep"
        (expression,) = command["unless"]["matches"]
        assert re.search(expression, f"Another\r\n{source}\r\nOther")
        assert not re.search(expression, f"{source}-Other\r\n")
