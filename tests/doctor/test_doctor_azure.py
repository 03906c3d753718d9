"""What is asked of Azure before a build: each case is what the Resource Manager answers, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from azure.core.exceptions import HttpResponseError

from imagegen.providers.azure.checks import run_quick_checks, run_thorough_checks
from imagegen.providers.azure.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagegen.providers.azure.client import Arm
    from tests.doctor.conftest import Compare

CASES = sorted((Path(__file__).parent / "azure").glob("*.json"))
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
ROOT = f"/subscriptions/{SUBSCRIPTION}"
GROUP = "/resourceGroups/images"
DEFINITION = f"{GROUP}/providers/Microsoft.Compute/galleries/gal/images/def"
SKUS = "/providers/Microsoft.Compute/skus"
USAGES = "/providers/Microsoft.Compute/locations/westeurope/usages"
PERMISSIONS = "/providers/Microsoft.Authorization/permissions"


def size(name: str, family: str, restrictions: tuple[dict[str, str], ...] = (), **can: str) -> dict[str, Any]:
    """A size as the list of SKUs has it."""
    told = {"vCPUs": "4", "HyperVGenerations": "V1,V2", **can}
    capabilities = [{"name": key, "value": value} for key, value in told.items()]
    kind = {"resourceType": "virtualMachines", "name": name, "family": family}
    return {**kind, "capabilities": capabilities, "restrictions": list(restrictions)}


def usage(name: str, used: int, limit: int) -> dict[str, Any]:
    """A counter as the list of usages has it."""
    return {"name": {"value": name, "localizedValue": name}, "currentValue": used, "limit": limit}


# A subscription in which everything is as it should be; paths begin below it.
ANSWERS: dict[str, Any] = {
    "": {"displayName": "Images", "state": "Enabled"},
    "/locations": [{"name": name} for name in ("westeurope", "northeurope", "westus2", "westus3")],
    DEFINITION: {"properties": {"osType": "Windows", "osState": "Generalized", "hyperVGeneration": "V2"}},
    SKUS: [
        size("Standard_D4s_v5", "standardDSv5Family"),
        size(
            "Standard_D4as_v5", "standardDASv5Family", ({"type": "Zone", "reasonCode": "NotAvailableForSubscription"},)
        ),
        size("Standard_D4s_v3", "standardDSv3Family", TrustedLaunchDisabled="True"),
        size("Standard_DC4as_v5", "standardDCASv5Family", HyperVGenerations="V2", ConfidentialComputingType="SNP"),
        size(
            "Standard_A4", "standardA0_A7Family", ({"type": "Location", "reasonCode": "NotAvailableForSubscription"},)
        ),
        {"resourceType": "disks", "name": "Standard_D4s_v5"},
    ],
    USAGES: [
        usage("cores", 6, 20),
        usage("lowPriorityCores", 0, 3),
        usage("StandardDSv5Family", 0, 10),
        usage("standardDASv5Family", 8, 10),
        usage("standardDSv3Family", 0, 10),
    ],
    PERMISSIONS: [{"actions": ["*"], "notActions": ["Microsoft.Authorization/*/Write"]}],
    f"{GROUP}{PERMISSIONS}": [{"actions": ["Microsoft.Compute/galleries/*"], "notActions": []}],
}


class Subscription:
    """Answers by path; what is not among them is not there."""

    root = ROOT
    subscription = SUBSCRIPTION

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = ANSWERS | answers
        self.calls: list[str] = []

    def get(self, path: str, version: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._answer(path, version)
        return found

    def listed(self, path: str, version: str, **query: str) -> Iterator[dict[str, Any]]:
        yield from self._answer(" ".join([path, *query.values()]), version) or []

    def _answer(self, path: str, version: str) -> Any:  # noqa: ANN401 - any answer
        assert version
        self.calls.append(path.removeprefix(ROOT) or "/")
        found = self.answers.get(path.removeprefix(ROOT).partition(" ")[0])
        if isinstance(found, dict) and "error" in found:
            code, message, status = found["error"]
            answer = SimpleNamespace(
                status_code=status,
                reason="",
                headers={"x-ms-request-id": "req-42"},
                text=lambda: json.dumps({"error": {"code": code, "message": message}}),
            )
            raise HttpResponseError(response=cast("Any", answer))
        return found


@pytest.mark.parametrize("file", CASES, ids=lambda file: file.stem)
def test_azure(file: Path, compare: Compare) -> None:
    case = json.loads(file.read_text())
    gallery = {"resource_group": "images", "name": "gal", "definition": "def", **case.get("gallery", {})}
    settings = Settings.model_validate({"location": "westeurope", "gallery": gallery, **case.get("settings", {})})
    definition = {DEFINITION: {"properties": case["definition"]}} if "definition" in case else {}
    arm = Subscription(definition | case.get("answers", {}))
    if case["ask"] == "quickly":
        checks = run_quick_checks(cast("Arm", arm), settings)
    else:
        checks = run_thorough_checks(cast("Arm", arm), settings, "1.35.6")
    compare(file, checks, arm.calls)
