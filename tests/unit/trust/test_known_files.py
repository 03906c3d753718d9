"""A plan with signatures names each file that the machine puts somewhere: the machine refuses all others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.render import guest_plan
from tests.authenticode.signing import sign_pe
from tests.conftest import REPOSITORY, load_today, make_test_lock
from tests.signing_support import make_signed_lock, sign_all, sign_scripts_by, signers, write_config

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imagegen.fetch.lock import Lock
    from imagegen.plan import loading
    from imagegen.plan.model import BuildPlan

CALICO = "cni: {plugin: calico, mode: vxlan}\nkube_proxy: none\n"
SHIPPED = REPOSITORY / "configs" / "windows-2022-containerd.yaml"


@pytest.fixture
def config(tmp_path: Path) -> loading.Loaded:
    (tmp_path / "roots.pem").write_bytes(signers().root.pem)
    made = write_config(tmp_path, CALICO, sets=("artifacts.signatures.roots=roots.pem",))
    sign_all(made, "aws")
    return made


def sign(_artifact: str, path: str, data: bytes) -> bytes:
    """Signs the programs and the scripts of stand-ins."""
    if data.startswith(b"MZ"):
        return sign_pe(data, signers().signer)
    return sign_scripts_by(signers().signer)(_artifact, path, data)


@pytest.fixture
def lock(config: loading.Loaded) -> Lock:
    return make_signed_lock(config, "aws", sign)


def known_files(config: loading.Loaded, lock: Lock) -> tuple[BuildPlan, dict[str, Any]]:
    plan = pipeline.decide(pipeline.prepare_target(config, "aws"), lock).plan
    known: dict[str, Any] = json.loads(guest_plan(plan))["signatures"]
    return plan, known


def checked_files(plan: BuildPlan) -> Iterator[str]:
    """The sha256 of each file that the engine asks about."""
    for resource in (resource for phase in plan.image.phases for resource in phase.resources()):
        yield from resource.downloaded.values()
        if resource.kind == "package":
            yield plan.image.artifacts[str(resource.fields["artifact"])].sha256
        if resource.kind in ("file", "script") and resource.fields.get("source"):
            yield json.loads(guest_plan(plan))["files"][resource.fields["source"]]


def test_each_file_is_known_and_only_those_that_were_judged_need_no_signature(
    config: loading.Loaded, lock: Lock
) -> None:
    plan, known = known_files(config, lock)
    assert set(checked_files(plan)) - known.keys() == set()
    assert {digest for digest, one in known.items() if one} == plan.build.signatures.keys()
    entries = lock.artifacts.values()
    judged = {(entry.members or {}).get(file, entry.sha256) for entry in entries for file in entry.not_programs}
    bundled = set(json.loads(guest_plan(plan))["files"].values())
    assert {digest for digest, one in known.items() if not one} <= judged | bundled


def test_a_file_that_nobody_judged_is_not_known(config: loading.Loaded, lock: Lock) -> None:
    calico = lock.artifacts["calico"]
    digest = (calico.members or {})["CalicoWindows/calico-node.exe"]
    less: dict[str, Any] = {
        "not_programs": [file for file in calico.not_programs if not file.endswith("calico-node.exe")]
    }
    less["signed"] = {file: one for file, one in (calico.signed or {}).items() if not file.endswith("calico-node.exe")}
    changed = lock.model_copy(update={"artifacts": {**lock.artifacts, "calico": calico.model_copy(update=less)}})
    assert digest in known_files(config, lock)[1]
    plan, known = known_files(config, changed)
    assert (digest in set(checked_files(plan)), digest in known) == (True, False)


def test_with_a_signer_for_one_override_only_its_files_are_asked_for(tmp_path: Path) -> None:
    own = "{url: https://artifacts.example.com/crictl.tar.gz, signer: CN=Example}"
    text = SHIPPED.read_text(encoding="utf-8")
    (tmp_path / "config.yaml").write_text(f"{text}\noverrides: {{crictl_url: {own}}}\n")
    config = load_today(tmp_path / "config.yaml")
    lock = make_test_lock(config, "aws")
    plan, known = known_files(config, lock)
    unknown = set(checked_files(plan)) - known.keys()
    assert unknown == set((lock.artifacts["crictl"].members or {}).values())
    assert set(known.values()) == {None}


def test_without_a_policy_the_plan_knows_nothing() -> None:
    config = load_today(SHIPPED)
    assert known_files(config, make_test_lock(config, "aws"))[1] == {}
