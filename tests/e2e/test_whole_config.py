"""All that a config can say, taken by real Packer: trees, whole rehearsals, the builder's sizes, a secret's name."""

from __future__ import annotations

import contextlib
import io
import json
import re
import urllib.parse
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.console import Console
from imagegen.base.errors import ExitCode, RefusedError
from imagegen.base.files import write_tree
from imagegen.build import process
from imagegen.rehearsal.clouds.aws import faults as aws
from imagegen.rehearsal.clouds.aws.fleets import failed_answer
from imagegen.rehearsal.clouds.aws.instances import AwsError
from imagegen.rehearsal.clouds.azure import faults as azure
from imagegen.rehearsal.clouds.azure.cloud import Azure
from imagegen.rehearsal.network.messages import Response
from imagegen.rehearsal.preparation import reject_unsupported
from imagegen.run import Run
from tests.conftest import REPOSITORY, load_today
from tests.e2e.rehearsal_support import (
    CONFIG,
    DEADLINE_S,
    TARGETS,
    cloud_of,
    imagegen,
    sandbox_of,
    setup_of,
    user_environ,
)
from tests.golden.test_golden import CASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from imagegen.build.process import Completed
    from imagegen.rehearsal.network.messages import Request
    from imagegen.rehearsal.sandbox import Sandbox
    from tests.conftest import Decided

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("tools_are_here")]

_MAXIMAL = REPOSITORY / "tests" / "golden" / "maximal.yaml"
# It asks for more than the plugin that imagegen builds from source can do.
_NEWER_PLUGIN = "newer-plugin"
_SECRET_NAME = "IMAGES_CLIENT_SECRET"  # noqa: S105 - the name of a variable


def _check(decided: Decided, out: Path, environ: dict[str, str]) -> None:
    """`packer fmt -check` and `packer validate`, as every build begins."""
    decision = decided.decision
    run = Run(environ, {}, "2026-11-18T10:00:00Z", console=Console(io.StringIO(), plain=True))
    folder = pipeline.build_folder(decision.plan, out)
    write_tree(pipeline.render_tree(decision), folder.tree)
    tools = pipeline.find_toolchain(decision.plan, run)
    pipeline.check(decision.plan, tools, folder, run)


def test_packer_accepts_the_trees_of_all_configs(decide: Callable[[Path, str], Decided], tmp_path: Path) -> None:
    cases = [(file, target) for file, target in CASES if file.stem != _NEWER_PLUGIN]
    assert {file.stem for file, _ in cases} >= {"minimal", "maximal", "air-gapped", "annual-channel", CONFIG.stem}
    for file, target in cases:
        _check(decide(file, target), tmp_path / target, user_environ(tmp_path))


def test_packer_gets_the_secret_by_the_name_of_the_config(
    decide: Callable[[Path, str], Decided], tmp_path: Path
) -> None:
    decided = decide(_MAXIMAL, "azure")
    known = user_environ(tmp_path, AZURE_CLIENT_ID="a-client", AZURE_TENANT_ID="a-tenant")
    _check(decided, tmp_path, known | {_SECRET_NAME: "a-secret-of-the-user"})
    with pytest.raises(RefusedError) as refused:
        _check(decided, tmp_path, known)
    assert "client_secret" in "\n".join(refused.value.details)


# Supported values, instead of regions and accounts that a rehearsal does not support.
_PLAYED = {
    "aws": (
        "targets.aws.region=eu-west-1",
        "targets.aws.publish.regions=[us-east-1]",
        "targets.aws.encryption.region_kms_keys={us-east-1: alias/images}",
        "targets.aws.auth.assume_role.role_arn=arn:aws:iam::111122223333:role/images",
        # A security group for the occasion, in the operator's own network, that admits few.
        "targets.aws.network.security_group_ids=[]",
        "targets.aws.network.allowed_cidrs=[10.20.7.16/28]",
        # A node that comes up has its cloud's metadata, which cloudbase-init reads without a token.
        "targets.aws.require_imds_tokens=false",
        "cloudbase_init.metadata_services.aws=[cloudbaseinit.metadata.services.ec2service.EC2Service]",
    ),
    "azure": (
        "targets.azure.auth={}",
        # From inside of the operator's own network.
        "targets.azure.network.public_address=false",
        # A node that comes up has its cloud's name for it.
        "cloudbase_init.plugins.azure=[cloudbaseinit.plugins.windows.createuser.CreateUserPlugin, "
        "cloudbaseinit.plugins.windows.ntpclient.NTPClientPlugin, cloudbaseinit.plugins.common.mtu.MTUPlugin, "
        "cloudbaseinit.plugins.common.sethostname.SetHostNamePlugin, "
        "cloudbaseinit.plugins.common.userdata.UserDataPlugin]",
    ),
}


_PLACES = {"aws": ["eu-west-1", "us-east-1"], "azure": ["westeurope", "northeurope", "uksouth"]}
_BASES = {
    "aws": {"owner": "111122223333", "name": "hardened-windows-2019-2026.11.11"},
    "azure": {
        "publisher": "MicrosoftWindowsServer",
        "offer": "WindowsServer",
        "sku": "2019-Datacenter",
        "version": "17763.8389.260210",
    },
}


def test_what_a_rehearsal_does_not_play_is_refused_by_name() -> None:
    elsewhere = ("targets.azure.location=mexicocentral", "targets.azure.publish.regions=[uksouth, chilecentral]")
    for target, paths in (
        ("aws", ["publish.regions[0]", "region"]),
        ("azure", ["auth", "location", "publish.regions[1]"]),
    ):
        with pytest.raises(RefusedError) as refused:
            reject_unsupported(load_today(_MAXIMAL, *elsewhere), target)
        assert sorted(problem.path for problem in refused.value.problems) == [f"targets.{target}.{it}" for it in paths]


# An AMI's name is its version; the gallery's is Kubernetes' own.
_VERSIONS = {"aws": "platform-windows-2019-v1.34.9-", "azure": "1.34.9"}
# What the machine says of itself, of many sections of the config.
_FOUND = {
    "system/environment:HTTPS_PROXY": {"type": "String", "data": "http://proxy.example.com:3128"},
    "kubernetes/path:C:\\opt\\kubernetes": {"entry": "C:\\opt\\kubernetes"},
    "containerd/directory:C:\\Program Files\\containerd\\certs.d\\registry.example.com_5000_": {
        "exists": True,
        "open": None,
    },
}


_SCRIPTS = {"scripts/script:01-prepare.ps1": ([], 0), "scripts/script:02-harden.ps1": (["-Level", "high one"], 0)}


@pytest.mark.parametrize("target", TARGETS)
def test_a_config_that_asks_for_all_is_rehearsed(target: str, tmp_path: Path) -> None:
    sets = [word for said in _PLAYED[target] for word in ("--set", said)]
    words = imagegen("build", _MAXIMAL, "--target", target, "--rehearse", "--out", tmp_path / "out", *sets)
    done = process.run([*words, "--format", "json"], environ=user_environ(tmp_path), cwd=tmp_path, timeout=DEADLINE_S)
    assert done.returncode == ExitCode.OK, done.stderr
    manifest: dict[str, Any] = json.loads(done.stdout)
    inputs, published = manifest["inputs"], manifest["published"]
    versions = {"cloudbase_init": "1.1.7", "containerd": "1.7.29", "csi_proxy": "1.3.0", "kubernetes": "1.34.9"}
    assert manifest["versions"] == versions | ({"gmsa": "1.1.4"} if target == "azure" else {})
    assert list(inputs["stated"]["set"]) == sorted(said.partition("=")[0] for said in _PLAYED[target])
    assert inputs["base"]["identity"] == _BASES[target]
    assert {urllib.parse.urlsplit(each["url"]).hostname for each in inputs["artifacts"].values()} == {
        "artifacts.example.com"
    }
    assert [image["region"] for image in published["images"]] == _PLACES[target]
    assert published["version"].startswith(_VERSIONS[target])
    assert manifest["notes"]["rehearsal"]["boot"]["cloudbase_init"] == "1.1.7"
    assert [phase["status"] for phase in manifest["report"]["phases"]] == ["finished"] * 6
    # The scripts are last, and the second of them may restart Windows.
    assert [each["id"] for each in manifest["report"]["resources"]][-2:] == list(_SCRIPTS)
    facts = {each["id"]: each["facts"] for each in manifest["report"]["resources"]}
    assert {name: facts[name] for name in _FOUND} == _FOUND
    assert {name: (facts[name]["arguments"], facts[name]["exit_code"]) for name in _SCRIPTS} == _SCRIPTS
    named = [said for said in manifest["notes"]["rehearsal"]["not_checked"] if "your script" in said]
    assert [said.split()[3] for said in named] == ["scripts/prepare.ps1", "scripts/harden.ps1"]


# What Packer's plugin takes for an answer at once. InsufficientInstanceCapacity is none: EC2 sends it with status 500,
# and the plugin asks ten times, for two minutes; as an answer of a fleet it asks again as well.
_NO_SPOT = AwsError(
    "UnfulfillableCapacity",
    "Unable to fulfill capacity due to your request configuration. Please adjust your request and try again.",
)


def _sku_not_available(size: str, more: str = "") -> Response:
    return azure.template_error("SkuNotAvailable", f"{azure.no_capacity(size, 'eastus2')}{more}")


_FIRST = {"aws": "m6i.large", "azure": "Standard_D4s_v5"}
_SECOND = {"aws": "m5.large", "azure": "Standard_D4as_v5"}
_HOSTS = {"aws": "ec2.us-east-1.amazonaws.com", "azure": "management.azure.com"}
# A template is validated, where the plugin takes a 400 for no error, and then deployed.
_TIMES = {"aws": 1, "azure": 2}


def _launching(size: str) -> Callable[[Request], bool]:
    words = re.compile(rf'(\bInstanceType=|"){re.escape(size)}(&|"|\Z)')
    return lambda request: words.search(request.body.decode()) is not None


def _refuse(sandbox: Sandbox, target: str, answer: Response) -> None:
    when = _launching(_FIRST[target])
    sandbox.network.inject(_HOSTS[target], response=answer, when=when, times=_TIMES[target])


@contextlib.contextmanager
def _sandbox(target: str, folder: Path) -> Iterator[Sandbox]:
    with sandbox_of(setup_of(target, folder / "out", load_today(CONFIG)), folder) as sandbox:
        yield sandbox
        assert (sandbox.faults, sandbox.missing, sandbox.network.untriggered_injections) == ([], [], 0)


def _build(
    sandbox: Sandbox, target: str, folder: Path, *words: str, without: Sequence[str] = (), **more: str
) -> Completed:
    argv = imagegen("build", CONFIG, "--target", target, "--out", folder / "out", "--lock", folder / "lock", *words)
    environ = {
        name: value for name, value in sandbox.child_environ(user_environ(folder)).items() if name not in without
    }
    return process.run([*argv, "--no-publish"], environ=environ | more, cwd=folder, timeout=DEADLINE_S)


@pytest.mark.parametrize("target", TARGETS)
def test_the_second_size_is_taken_where_the_first_cannot_be_had(target: str, tmp_path: Path) -> None:
    code, answer = {
        "aws": ("VcpuLimitExceeded", aws.QUOTA),
        "azure": ("SkuNotAvailable", _sku_not_available(_FIRST[target])),
    }[target]
    with _sandbox(target, tmp_path) as sandbox:
        _refuse(sandbox, target, answer)
        # Answered as ever: it shows that the second size was asked for.
        asked = _launching(_SECOND[target])
        sandbox.network.inject(_HOSTS[target], mutate=lambda _, answer: answer, when=asked, times=_TIMES[target])
        done = _build(sandbox, target, tmp_path, "--format", "json")
        assert done.returncode == ExitCode.OK, done.stderr
        assert len(sandbox.network.machines) == 1
    assert f"warning: {_FIRST[target]} is not available now ({code}): trying {_SECOND[target]}\n" in done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["built"]["state"] == "available"
    assert [phase["status"] for phase in manifest["report"]["phases"]] == ["finished", "finished"]


def test_the_only_size_on_spare_capacity_cannot_be_had(tmp_path: Path) -> None:
    with _sandbox("aws", tmp_path) as sandbox:
        _refuse(sandbox, "aws", Response(200, failed_answer(_NO_SPOT), (("Content-Type", "text/xml"),)))
        sets = ("--set", "targets.aws.instance_types=[m6i.large]", "--set", "targets.aws.spot={}")
        done = _build(sandbox, "aws", tmp_path, *sets)
        assert sandbox.network.machines == []
    _assert_failed_for(done, _NO_SPOT.message)


def test_the_only_size_cannot_be_had_and_the_secret_stays_one(tmp_path: Path) -> None:
    with _sandbox("azure", tmp_path) as sandbox:
        secret = cloud_of(sandbox.network, Azure).application.secret
        # A cloud that echoes what it was told: whoever cannot sign in by this secret does not come so far.
        _refuse(sandbox, "azure", _sku_not_available(_FIRST["azure"], f" Asked with {secret}."))
        sets = ("targets.azure.vm_sizes=[Standard_D4s_v5]", f"targets.azure.auth.client_secret_env={_SECRET_NAME}")
        words = [word for said in sets for word in ("--set", said)]
        usual = ("AZURE_CLIENT_SECRET", "ARM_CLIENT_SECRET")
        done = _build(sandbox, "azure", tmp_path, *words, without=usual, **{_SECRET_NAME: secret})
        assert sandbox.network.machines == []
    _assert_failed_for(done, "SkuNotAvailable")
    # Packer's own word for it: the value reached it as a secret.
    assert "Asked with <sensitive>." in done.stderr
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    [log] = [path for path in written if path.name == "packer.log"]
    assert "Asked with <sensitive>." in log.read_text()
    told = [done.stdout.encode(), done.stderr.encode(), *(path.read_bytes() for path in written)]
    assert [text for text in told if secret.encode() in text] == []


def _assert_failed_for(done: Completed, reason: str) -> None:
    assert (done.returncode, done.stdout) == (ExitCode.BUILD, "")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ", len("00:00:00Z "))]
    assert reason in line
    assert "is not available now" not in done.stderr
