"""`imagegen doctor` and the quick part of `build` as children, asked of both stand-ins through the real SDKs."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.base.errors import ExitCode
from imagegen.build import process
from imagegen.rehearsal.clouds.aws.account import AccountLimits
from imagegen.rehearsal.clouds.aws.cloud import AwsOptions
from imagegen.rehearsal.clouds.azure.cloud import AzureOptions
from imagegen.rehearsal.clouds.azure.options import Size, default_sizes
from tests.e2e.rehearsal_support import CONFIG, DEADLINE_S, TARGETS, imagegen, options_of, sandbox_of, setup_of

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.rehearsal.sandbox import Sandbox, SandboxSetup

pytestmark = pytest.mark.e2e

# What a build may wait for, whatever it finds.
QUICK_S = 2.0
ASKED_QUICKLY = {
    "aws": ["sts:GetCallerIdentity", "ec2:DescribeRegions", "ec2:DescribeVpcs"],
    "azure": ["login:token", "GET subscriptions", "GET locations", "GET galleries/images"],
}


def _run(sandbox: Sandbox, folder: Path, *words: str | Path) -> process.Completed:
    environ = sandbox.child_environ(os.environ)
    return process.run(imagegen(*words), environ=environ, cwd=folder, timeout=DEADLINE_S)


def _doctor(sandbox: Sandbox, folder: Path, target: str) -> tuple[int, dict[str, Any]]:
    done = _run(sandbox, folder, "doctor", CONFIG, "--target", target, "--format", "json", "--quiet")
    assert sandbox.faults == []
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


@pytest.mark.usefixtures("tools_are_here")
@pytest.mark.parametrize("target", TARGETS)
def test_everything_is_ok_where_everything_is_there_and_nothing_is_made(target: str, tmp_path: Path) -> None:
    with sandbox_of(setup_of(target, tmp_path), tmp_path) as sandbox:
        code, found = _doctor(sandbox, tmp_path, target)
        notes = sandbox.network.notes()
        assert sandbox.network.machines == []
    checks = found["targets"][target]
    assert [check for check in checks if check["verdict"] != "ok"] == []
    assert (code, found["ok"]) == (ExitCode.OK, True)
    assert {check["subject"].partition(" ")[0] for check in checks} >= {"tools", "sign-in", "base", "sizes", "vCPU"}
    if target == "aws":
        asked = {note for note in notes if not note.partition(":")[2].startswith(("Describe", "Get"))}
        assert asked == {"ec2:CreateKeyPair", "ec2:CreateSecurityGroup", "ec2:RunInstances", "ec2:CopyImage"}
    else:
        assert {note.partition(" ")[0] for note in notes if note != "login:token"} == {"GET"}


def _spoilt(setup: SandboxSetup) -> SandboxSetup:
    """An account in which a build would fail for several reasons at once."""
    if isinstance(setup.cloud_options, AwsOptions):
        limits = AccountLimits(
            disabled_regions=frozenset({"us-west-2"}),
            denied_actions=frozenset({"ec2:CreateKeyPair"}),
            not_offered=frozenset({"m6i.large"}),
            quotas={"L-1216C47A": 1},
        )
        return dataclasses.replace(setup, cloud_options=dataclasses.replace(setup.cloud_options, limits=limits))
    before = options_of(setup, AzureOptions)
    (definition,) = before.definitions
    options = dataclasses.replace(
        before,
        definitions=(dataclasses.replace(definition, generation="V1", os_type="Linux"),),
        absent_regions=frozenset({"westus3"}),
        sizes={**default_sizes(), "Standard_D4as_v5": Size("f", 4, restricted="NotAvailableForSubscription")},
        usages={"cores": (98, 100)},
        denied_actions=frozenset({"Microsoft.Compute/galleries/images/versions/write"}),
    )
    return dataclasses.replace(setup, cloud_options=options)


WRONG = {
    "aws": {
        "publish region us-west-2": "this account has not enabled the region",
        "vCPU quota L-1216C47A": "m5.large needs 2, too many",
        "permission for ec2:CreateKeyPair": "no identity-based policy allows the ec2:CreateKeyPair action",
        "permission for ec2:CopyImage in us-west-2": "AuthFailure",
    },
    "azure": {
        "publish region westus3": "the subscription has no region of this name",
        "image definition clusterapi/capi-win-2022-containerd": "but the image has",
        "vCPU quota": "Standard_D4s_v5 needs 4 vCPUs: 2 left of cores",
        "permissions in resource group cluster-api-gallery": "Microsoft.Compute/galleries/images/versions/write",
    },
}


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_wrong_is_told_and_a_build_is_refused_in_time(target: str, tmp_path: Path) -> None:
    with sandbox_of(_spoilt(setup_of(target, tmp_path)), tmp_path) as sandbox:
        code, found = _doctor(sandbox, tmp_path, target)
        told_before = len(sandbox.network.notes())
        out, lock = tmp_path / "out", tmp_path / "lock.json"
        words = ("build", CONFIG, "--target", target, "--plain", "--out", out, "--lock", lock)
        done = _run(sandbox, tmp_path, *words)
        asked = sandbox.network.notes()[told_before:]
        assert (sandbox.faults, sandbox.network.machines) == ([], [])

    wrong = {check["subject"]: check["message"] for check in found["targets"][target] if check["verdict"] == "wrong"}
    assert wrong.keys() - {"tools"} == WRONG[target].keys()
    assert [subject for subject, words in WRONG[target].items() if words not in wrong[subject]] == []
    assert (code, found["ok"]) == (ExitCode.REFUSED, False)

    # The build stops at what the quick part sees, with nothing made in the cloud or on the disk.
    assert done.returncode == ExitCode.REFUSED, done.stderr
    assert asked == ASKED_QUICKLY[target]
    assert [out.exists(), lock.exists()] == [False, False]
    assert f"error: {target} would fail this build" in done.stderr
    assert "  hint: " in done.stderr
    took = re.search(r"asking \w+ whether it can be built: done in ([0-9.]+)s", done.stderr)
    assert took is not None, done.stderr
    print(f"\nthe quick part on {target}: {took[1]} s")
    assert float(took[1]) < QUICK_S
