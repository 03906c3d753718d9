"""`imagegen lock` and `imagegen plan` with a policy for signatures: what they accept and refuse, and when they ask."""

from __future__ import annotations

import copy
import hashlib
import json
import shlex
from typing import IO, TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.errors import VerificationError
from imagegen.cli.arguments import open_run
from imagegen.fetch import http, locking
from imagegen.fetch.download import Download, Fetched
from imagegen.fetch.http import Answer
from imagegen.fetch.lock import Lock, StoredLock
from imagegen.providers.aws import provider as aws
from imagegen.rehearsal.artifacts import make_artifacts
from imagegen.rehearsal.signing.stand_in_signer import StandInSigner
from tests.conftest import REPOSITORY, load_today, looked_up
from tests.provider_answers import answer
from tests.signing_support import StampedSigner, signers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., tuple[object, str, str]]
    Command = Callable[..., tuple[object, str, str]]

SHIPPED = REPOSITORY / "configs" / "signed-artifacts.yaml"
PINNED = ("containerd", "crictl", "cloudbase_init")
SETS = (*(f"overrides.{name}_url.sha256=null" for name in PINNED), "artifacts.require_sha256=false")
KUBELET = "https://artifacts.example.com/signed/kubernetes/v1.36.4/kubelet.exe"
CRL = "https://artifacts.example.com/signing.crl"
OTHER_CRL = "https://artifacts.example.com/other.crl"


class Web:
    """The company's server."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = dict(files)
        self.asked: list[str] = []

    def fill(self, download: Download, file: IO[bytes]) -> Fetched:
        self.asked.append(download.url)
        data = self.files[download.url]
        file.write(data)
        return Fetched(hashlib.sha256(data).hexdigest(), len(data))


@pytest.fixture(scope="module")
def signed() -> tuple[dict[str, bytes], bytes]:
    """The signed stand-ins by their URLs, with a CRL, and the roots."""
    target = pipeline.prepare_target(load_today(SHIPPED, *SETS), "aws")
    signer = StandInSigner(target.signatures)
    return make_artifacts(target.steps, signer.sign) | {CRL: signer.revocation_lists}, signer.roots


@pytest.fixture
def web(signed: tuple[dict[str, bytes], bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Web:
    found = Web(signed[0])
    (tmp_path / "roots.pem").write_bytes(signed[1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("IMAGEGEN_SIGNING_ROOTS", str(tmp_path / "roots.pem"))
    monkeypatch.setattr(Download, "fill", lambda download, file: found.fill(download, file))
    monkeypatch.setattr(http.Web, "ask", lambda *_: Answer(404, {}, b""))
    answer(monkeypatch, aws, look_up_base=lambda _, request, __: looked_up("aws", request))
    return found


@pytest.fixture
def command(run: Run, web: Web, tmp_path: Path) -> Command:
    assert web.asked == []

    def ran(verb: str, *sets: str, config: Path = SHIPPED, own: tuple[str, ...] = SETS) -> tuple[object, str, str]:
        options = [word for text in (*own, *sets) for word in ("--set", text)]
        plain = ["--plain"] if verb == "lock" else []
        return run(verb, config, *options, "--target", "aws", "--lock", tmp_path / "x.lock.json", *plain)

    return ran


def stored(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "x.lock.json").read_text())
    return found


def test_a_lock_of_signed_artifacts_has_their_signers(web: Web, command: Command, tmp_path: Path) -> None:
    code, _, err = command("lock", f"artifacts.signatures.crls=[{CRL}]")
    assert code == 0, err
    assert f"signatures are judged by the roots in {tmp_path}/roots.pem, which IMAGEGEN_SIGNING_ROOTS names" in err
    assert web.asked.count(CRL) == 1
    (found,) = stored(tmp_path)["artifacts"]["kubelet"]["signed"].values()
    assert (found["signer"], found["root"]["subject"]) == ("CN=Example Corporation", "CN=Rehearsal Root")
    web.asked.clear()
    code, out, _ = command("plan")
    assert code == 0
    assert "signatures (10 files)\n  root CN=Rehearsal Root\n    sha256 " in out
    assert "\n    9 files signed by CN=Example Corporation\n    1 file signed by O=Cloudbase Solutions Srl\n" in out
    assert web.asked == []


# Its MSI keeps a signer of its own.
STAMPED = "artifacts.signatures.signers=[CN=Example Inc]"


@pytest.fixture
def stamped(web: Web, tmp_path: Path) -> None:
    """The programs have timestamps, whose root is another one than the signer's."""
    target = pipeline.prepare_target(load_today(SHIPPED, *SETS, STAMPED), "aws")
    signer = StampedSigner(target.signatures)
    web.files |= make_artifacts(target.steps, signer.sign)
    (tmp_path / "roots.pem").write_bytes(signer.roots)


@pytest.mark.usefixtures("stamped")
def test_a_lock_and_a_plan_name_the_roots_of_timestamps(command: Command, tmp_path: Path) -> None:
    assert command("lock", STAMPED)[0] == 0
    (found,) = stored(tmp_path)["artifacts"]["kubelet"]["signed"].values()
    root = signers().clock.chain[-1].read.sha256.lower()
    assert found["timestamp_root"] == {"subject": "CN=Example Clock Root", "thumbprint": root}
    code, out, _ = command("plan", STAMPED)
    assert code == 0
    assert f"\n  root CN=Example Clock Root\n    sha256 {root}\n    9 files with a timestamp\n  root CN=Exam" in out
    assert "\n    9 files signed by CN=Example Inc, O=Example Inc\n  root CN=Rehearsal Root\n" in out


@pytest.mark.usefixtures("stamped")
def test_an_older_lock_without_the_roots_of_timestamps_is_completed(web: Web, command: Command, tmp_path: Path) -> None:
    assert command("lock", STAMPED)[0] == 0
    new = stored(tmp_path)
    old = copy.deepcopy(new)
    for signature in (one for entry in old["artifacts"].values() for one in (entry["signed"] or {}).values()):
        del signature["timestamp_root"]
    (tmp_path / "x.lock.json").write_text(json.dumps(old))
    web.asked.clear()
    code, _, err = command("plan", STAMPED)
    assert (code, "has no entry for the signatures of containerd" in err) == (2, True)
    assert command("lock", STAMPED)[0] == 0
    assert (stored(tmp_path), web.asked) == (new, [])


def test_a_wrong_lock_ends_the_build_with_the_command_that_mends_it(command: Command, run: Run, tmp_path: Path) -> None:
    assert command("lock")[0] == 0
    good = stored(tmp_path)
    file, forged = tmp_path / "x.lock.json", copy.deepcopy(good)
    forged["artifacts"]["kubelet"]["signed"][""]["by"] = "nested"
    file.write_text(json.dumps(forged))
    target, facts = pipeline.prepare_target(load_today(SHIPPED, *SETS), "aws"), open_run(plain=True)
    with pytest.raises(VerificationError, match="is wrong about the signature of 1 file") as raised:
        locking.verify_lock(target, StoredLock(file, Lock.model_validate(forged), ""), facts)
    assert raised.value.details == ("kubelet: by is nested in the lock, but own in the file",)
    words = shlex.split(raised.value.hint.split("`")[1])
    assert words == ["imagegen", "lock", str(SHIPPED), "--lock", str(file), "--upgrade", "kubelet"]
    options = [word for text in SETS for word in ("--set", text)]
    assert run(*words[1:], *options, "--target", "aws", "--plain")[0] == 0
    assert stored(tmp_path) == good


def test_a_lock_with_another_member_ends_the_build_before_anything_is_made(command: Command, tmp_path: Path) -> None:
    assert command("lock", "artifacts.signatures=null", "overrides.cloudbase_init_url.signer=null")[0] == 0
    file, forged = tmp_path / "x.lock.json", stored(tmp_path)
    forged["artifacts"]["crictl"]["members"]["crictl.exe"] = "0" * 64
    plain = ("artifacts.signatures=null", "overrides.cloudbase_init_url.signer=null")
    target = pipeline.prepare_target(load_today(SHIPPED, *SETS, *plain), "aws")
    with pytest.raises(VerificationError, match=r"x\.lock\.json is wrong about 1 file") as raised:
        locking.verify_lock(target, StoredLock(file, Lock.model_validate(forged), ""), open_run(plain=True))
    assert raised.value.details[0].endswith(f"but the lock says {'0' * 64}")
    assert raised.value.hint.endswith("--upgrade crictl` reads the files again")


def test_an_unsigned_program_ends_the_lock(web: Web, command: Command, tmp_path: Path) -> None:
    web.files[KUBELET] = make_artifacts(pipeline.prepare_target(load_today(SHIPPED, *SETS), "aws").steps)[KUBELET]
    code, out, err = command("lock")
    assert (code, out) == (4, "")
    assert "error: the signature of 1 file is not as the config requires" in err
    assert "kubelet is not signed, but artifacts.signatures.signers requires CN=Example Corporation" in err
    assert not (tmp_path / "x.lock.json").exists()


def test_a_public_program_is_warned_of_before_it_is_downloaded(web: Web, command: Command) -> None:
    plain = REPOSITORY / "configs" / "windows-2022-containerd.yaml"
    made = make_artifacts(pipeline.prepare_target(load_today(plain), "aws").steps)
    web.files |= made
    code, _, err = command("lock", "artifacts.signatures.signers=[microsoft]", config=plain, own=())
    assert code == 4
    warning = (
        "kube-log-runner, kubeadm, kubectl, kubelet: published without a signature, but artifacts.signatures.signers"
    )
    assert err.index(f"warning: {warning}") < err.index("looking up 7 artifacts")
    assert "hint: no signature is published with crictl: set overrides.crictl_url to a signed copy" in err


@pytest.mark.parametrize("verb", ["plan", "lock", "render"])
def test_another_signer_needs_no_download(web: Web, command: Command, verb: str, tmp_path: Path) -> None:
    assert command("lock")[0] == 0
    web.asked.clear()
    code, _, err = command(verb, "artifacts.signatures.signers=[CN=Other]")
    assert code == 4
    assert "kubelet is signed by CN=Example Corporation, but artifacts.signatures.signers requires CN=Other" in err
    assert (web.asked, sorted(path.name for path in tmp_path.iterdir())) == ([], ["cache", "roots.pem", "x.lock.json"])


@pytest.mark.parametrize("verb", ["plan", "render"])
def test_a_plan_needs_all_scripts_signed(web: Web, command: Command, verb: str) -> None:
    assert command("lock")[0] == 0
    web.asked.clear()
    code, out, err = command(verb, "artifacts.signatures.own_scripts.from=not-there")
    assert (code, out, web.asked) == (4, "", [])
    assert "scripts cannot run under the execution policy AllSigned" in err
    folder = SHIPPED.parent / "not-there"
    assert f"  common.psm1: the folder {folder} does not exist" in err
    assert f"hint: run `imagegen sign-list {SHIPPED} --target aws --out DIR`" in err


def test_a_lock_without_signatures_is_completed_from_the_cache(web: Web, command: Command, tmp_path: Path) -> None:
    assert command("lock", "artifacts.signatures=null", "overrides.cloudbase_init_url.signer=null")[0] == 0
    assert stored(tmp_path)["artifacts"]["kubelet"]["signed"] is None
    code, _, err = command("plan")
    assert code == 2
    assert "has no entry for the signatures of " in err
    web.asked.clear()
    assert command("lock")[0] == 0
    assert web.asked == []
    assert stored(tmp_path)["artifacts"]["kubelet"]["signed"]
