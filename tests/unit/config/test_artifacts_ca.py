"""artifacts.ca: whom imagegen trusts for downloads, and what the machine gets if it needs that too."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from imagegen.base.errors import ConfigError
from imagegen.fetch.locking import check_complete
from imagegen.pipeline import decide, prepare_target
from imagegen.plan.target import PreparedTarget
from tests.authenticode.pki import make_ca, make_root, pki
from tests.conftest import REPOSITORY, load_today, make_test_lock

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.fetch.lock import Lock
    from imagegen.plan.model import BuildPlan

TEXT = (REPOSITORY / "configs" / "windows-2022-containerd.yaml").read_text(encoding="utf-8")
ROOT, OTHER = pki().root, make_root("O=Other, CN=Other Root")
PUBLIC, OWN = "https://dl.k8s.io", "https://artifacts.example.com"
OVERRIDE = f"overrides.containerd_url={OWN}/containerd.tar.gz"


def prepared(folder: Path, *sets: str, ca: str = "[a.pem, b.pem]", a: bytes = ROOT.pem) -> PreparedTarget:
    (folder / "a.pem").write_bytes(a)
    (folder / "b.pem").write_bytes(OTHER.der)
    (folder / "config.yaml").write_text(f"{TEXT}\nartifacts: {{ca: {ca}}}\n")
    return prepare_target(load_today(folder / "config.yaml", *sets), "aws")


def locked(target: PreparedTarget, *needing: str) -> Lock:
    lock = make_test_lock(target.loaded, "aws")
    hosts = {one.url.split("/")[2] for one in lock.artifacts.values()}
    return lock.model_copy(update={"ca_hosts": {host: f"https://{host}" in needing for host in sorted(hosts)}})


def certificates(plan: BuildPlan) -> list[str]:
    resources = [one for phase in plan.image.phases for one in phase.resources()]
    assert [one.kind for one in resources if one.kind == "certificate"] == [
        one.kind for one in resources[: len([one for one in resources if one.kind == "certificate"])]
    ], "they are the first resources"
    return [str(one.fields["subject"]) for one in resources if one.kind == "certificate"]


def test_its_roots_are_trusted_beside_the_public_ones(tmp_path: Path) -> None:
    assert prepared(tmp_path).hosts.authorities == (ROOT.der, OTHER.der)
    assert (
        prepare_target(load_today(REPOSITORY / "configs/windows-2022-containerd.yaml"), "aws").hosts.authorities == ()
    )


def test_the_machine_trusts_them_only_if_a_host_of_its_downloads_needs_them(tmp_path: Path) -> None:
    target = prepared(tmp_path, OVERRIDE)
    assert certificates(decide(target, locked(target)).plan) == []
    needed = decide(target, locked(target, OWN))
    assert certificates(needed.plan) == [str(ROOT.read.subject), str(OTHER.read.subject)]
    assert {ROOT.der, OTHER.der} <= set(needed.bundle.values())


def test_a_root_that_the_machine_has_anyway_comes_once(tmp_path: Path) -> None:
    target = prepared(tmp_path, OVERRIDE, "windows.trusted_roots=[a.pem]")
    assert certificates(decide(target, locked(target)).plan) == [str(ROOT.read.subject)]
    assert certificates(decide(target, locked(target, OWN)).plan) == [str(ROOT.read.subject), str(OTHER.read.subject)]


def test_a_lock_that_does_not_say_who_vouches_for_a_host_is_not_complete(tmp_path: Path) -> None:
    target = prepared(tmp_path, OVERRIDE)
    lock = locked(target)
    check_complete(target, lock, tmp_path / "x.lock.json")
    del lock.ca_hosts["artifacts.example.com"]
    with pytest.raises(ConfigError, match=r"has no entry for the certificate of artifacts\.example\.com$"):
        check_complete(target, lock, tmp_path / "x.lock.json")
    without = dataclasses.replace(target, spec=dataclasses.replace(target.spec, authorities=()))
    check_complete(without, lock, tmp_path / "x.lock.json")


@pytest.mark.parametrize(
    ("ca", "a", "path", "message", "hint"),
    [
        ("a.pem", ROOT.pem, "artifacts.ca", "must be a list, not a string", 'write ["a.pem"]'),
        ("[c.pem]", ROOT.pem, "artifacts.ca[0]", "c.pem does not exist", "write a path relative to the config"),
        (
            "[a.pem]",
            make_ca(ROOT).pem,
            "artifacts.ca[0]",
            "is not a root: its issuer is",
            "give the certificate of the root. A signature or a server brings the certificates below it",
        ),
        ("[a.pem]", b"text", "artifacts.ca[0]", "a.pem: a certificate cannot be read", "give a root certificate as"),
    ],
)
def test_what_it_cannot_be(tmp_path: Path, ca: str, a: bytes, path: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        prepared(tmp_path, ca=ca, a=a)
    (problem,) = [one for one in raised.value.problems if one.severity == "error"]
    assert problem.path == path
    assert message in problem.message
    assert problem.hint.startswith(hint)
