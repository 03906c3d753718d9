"""The operator's own programs and scripts: they are judged as downloads are, and the machine checks them too."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import io
from typing import TYPE_CHECKING

import pytest

from imagegen import pipeline
from imagegen.authenticode.cms import PE_IMAGE
from imagegen.authenticode.files import PortableExecutable
from imagegen.base.console import Console
from imagegen.base.errors import ExitCode
from imagegen.fetch import locking
from imagegen.fetch.download import Download, Fetched
from imagegen.fetch.lock import Lock, StoredLock
from imagegen.run import Run
from imagegen.trust.record import SignatureError
from tests.authenticode.pki import make_crl
from tests.authenticode.signing import make_catalogue, sign_pe, sign_script
from tests.authenticode.support import fixture
from tests.conftest import load_today, make_test_lock
from tests.signing_support import SIGNED, sign_all, signers, write_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import IO

    from imagegen.plan.resolve import Decision
    from imagegen.plan.target import PreparedTarget

CONFIG = """\
name: own
windows: {release: "2022"}
kubernetes: {version: "1.36.4"}
runtime: {containerd: {version: "2.3.4"}}
targets: {aws: {region: us-east-1, network: {allowed_cidrs: ["192.0.2.0/24"]}}}
"""
POLICY = "artifacts: {signatures: {signers: [CN=Example Inc], roots: root.pem}}\n"
OWN = "steps_path: steps\nscripts: [harden.ps1]\nkubeadm_scripts: {pre: [join.ps1], post: [join.ps1]}\n"
RESOURCES = r"""
- directory: {path: 'C:\Program Files\Agent'}
- file: {path: 'C:\Program Files\Agent\agent.exe', source: agent.bin}
- file: {path: 'C:\Program Files\Agent\agent.psm1', source: agent.psm1}
- file: {path: 'C:\Program Files\Agent\agent.cat', source: agent.cat}
- file: {path: 'C:\Program Files\Agent\run.cmd', source: run.cmd}
- script: {name: set-up.ps1, source: set-up.ps1, arguments: [], good_exit_codes: [0], timeout_s: 60}
"""
META = "summary: an agent of the operator\nafter: [kubernetes]\nreads: []\ntimeout_s: 60\n"
SCRIPT, PROGRAM = b"Write-Output 1\n", fixture("program.exe")
FLAT = "de351a42-8e59-11d0-8c47-00c04fc295ee"
STEP = "steps/agent/files"


def signed_script(text: bytes = SCRIPT) -> bytes:
    return sign_script(text, signers().signer)


def catalogue() -> bytes:
    return make_catalogue([(FLAT, "sha256", hashlib.sha256(b"nothing").digest())], signers().signer)


def good_files() -> dict[str, bytes]:
    return {
        "harden.ps1": signed_script(),
        "join.ps1": signed_script(b"Write-Output 2\n"),
        f"{STEP}/agent.bin": sign_pe(PROGRAM, signers().signer),
        f"{STEP}/agent.psm1": sign_script(b"$a = 1\n", signers().signer, extension=".psm1"),
        f"{STEP}/agent.cat": catalogue(),
        f"{STEP}/run.cmd": b"rem text\r\n",
        f"{STEP}/set-up.ps1": signed_script(b"Write-Output 3\n"),
    }


def prepare(
    folder: Path, changes: Mapping[str, bytes] | None = None, policy: str = POLICY, *sets: str
) -> PreparedTarget:
    """A config with files beside it, some of them changed."""
    write_root(folder)
    files = {"config.yaml": f"{CONFIG}{OWN}{policy}".encode(), **good_files()}
    files |= {"steps/agent/meta/step.yml": META.encode(), "steps/agent/resources.yml": RESOURCES.encode()}
    files |= changes or {}
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return pipeline.prepare_target(load_today(folder / "config.yaml", *sets), "aws")


def decide(target: PreparedTarget) -> Decision:
    return pipeline.decide(target, make_test_lock(target.loaded, "aws"))


def test_the_plan_has_the_signature_of_each_own_program(tmp_path: Path) -> None:
    decision = decide(prepare(tmp_path))
    signed = {hashlib.sha256(data).hexdigest() for path, data in good_files().items() if not path.endswith(".cmd")}
    planned = decision.plan.build.signatures
    assert len(planned) == len(signed)
    assert {one.thumbprint for one in planned.values()} == {signers().signer.read.sha256.lower()}
    assert {one.hidden for one in planned.values()} == {None}
    assert planned.keys() <= {*decision.plan.image.files.values()}


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A file, its other bytes, and what imagegen says."""

    path: str
    data: bytes
    says: str
    hint: str


KEY = "artifacts.signatures.signers"
REFUSED = {
    "a script": Refusal(
        "harden.ps1",
        SCRIPT,
        f"scripts[0]: harden.ps1 is not signed, but {KEY} requires CN=Example Inc",
        "sign it, or set scripts[0] to a signed copy",
    ),
    "a program of a step, by its bytes": Refusal(
        f"{STEP}/agent.bin",
        PROGRAM,
        f"step agent: agent.bin is not signed, but {KEY} requires CN=Example Inc",
        "sign it, or set source in FOLDER/steps/agent/resources.yml to a signed copy",
    ),
    "a program of a step, by its name on the machine": Refusal(
        f"{STEP}/agent.bin", b"text", f"step agent: agent.bin is not signed, but {KEY}", "sign it, or set source in "
    ),
    "a module of a step": Refusal(
        f"{STEP}/agent.psm1", b"$a = 1\n", f"step agent: agent.psm1 is not signed, but {KEY}", "sign it"
    ),
    "a script that a step runs": Refusal(
        f"{STEP}/set-up.ps1", SCRIPT, f"step agent: set-up.ps1 is not signed, but {KEY}", "sign it"
    ),
    "another signer": Refusal(
        "harden.ps1",
        sign_script(SCRIPT, signers().signer.issuer or signers().signer),
        f"scripts[0]: harden.ps1 is rejected by {KEY}: wrong usage: ",
        "sign it with a certificate for code signing",
    ),
    "an untrusted signer": Refusal(
        "harden.ps1",
        sign_script(SCRIPT, signers().stranger),
        f"scripts[0]: harden.ps1 is rejected by {KEY}: untrusted: ",
        "",
    ),
    "a changed script": Refusal(
        "harden.ps1",
        signed_script().replace(b"Output 1", b"Output 2"),
        f"scripts[0]: harden.ps1 is rejected by {KEY}: altered: the file was changed after it was signed",
        "find out what changed the file after it was signed, or set scripts[0] to another file",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_own_file_that_is_not_as_the_policy_says_is_refused(tmp_path: Path, case: str) -> None:
    wrong = REFUSED[case]
    target = prepare(tmp_path, {wrong.path: wrong.data})
    with pytest.raises(SignatureError) as raised:
        decide(target)
    assert raised.value.exit_code is ExitCode.VERIFICATION
    line, hint = raised.value.details
    assert line.startswith(wrong.says)
    assert hint.replace(str(tmp_path), "FOLDER").startswith(f"  hint: {wrong.hint}")


def test_all_that_is_wrong_stands_together(tmp_path: Path) -> None:
    target = prepare(tmp_path, {"join.ps1": SCRIPT, f"{STEP}/set-up.ps1": SCRIPT})
    with pytest.raises(SignatureError) as raised:
        decide(target)
    lines = [line.partition(" is not")[0] for line in raised.value.details if "hint" not in line]
    # Both keys name the same bytes, which are one file of the bundle.
    assert sorted(lines) == ["kubeadm_scripts.pre[0]: join.ps1", "step agent: set-up.ps1"]


def test_a_script_of_a_template_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """A signature does not survive the template. A static file has one, or its text has a signed copy."""
    resources = f"{RESOURCES}- file: {{path: 'C:\\Program Files\\agent\\made.ps1', template: made.ps1.j2}}\n"
    made = {"steps/agent/templates/made.ps1.j2": SCRIPT, "steps/agent/resources.yml": resources.encode()}
    with pytest.raises(SignatureError) as raised:
        decide(prepare(tmp_path, made))
    assert raised.value.details == (
        f"step agent: made.ps1 is not signed, but {KEY} requires CN=Example Inc",
        f"  hint: sign it, or set source in place of template in {tmp_path}/steps/agent/resources.yml to a signed copy",
    )


def test_only_who_may_sign_counts(tmp_path: Path) -> None:
    target = prepare(tmp_path, {}, POLICY.replace("Example Inc", "Somebody"))
    with pytest.raises(SignatureError) as raised:
        decide(target)
    assert (
        'is signed by CN=Example Inc, O=Example Inc, but artifacts.signatures.signers requires CN=Somebody: CN is "E'
        in (raised.value.details[0])
    )


def test_a_catalogue_of_the_step_signs_for_its_files(tmp_path: Path) -> None:
    listed = (PE_IMAGE, "sha256", PortableExecutable(io.BytesIO(PROGRAM)).digest("sha256"))
    made = make_catalogue([listed], signers().signer)
    decision = decide(prepare(tmp_path, {f"{STEP}/agent.bin": PROGRAM, f"{STEP}/agent.cat": made}))
    planned = decision.plan.build.signatures[hashlib.sha256(PROGRAM).hexdigest()]
    # Windows has not installed it.
    assert planned.hidden == "catalogue"


OTHER_POLICIES = {
    "none": "",
    "of hosts": "artifacts: {denied_hosts: [example.net]}\n",
    "of one override": "overrides: {crictl_url: {url: 'https://a.example.com/crictl.tar.gz', signer: CN=Example}}\n",
}


@pytest.mark.parametrize("policy", OTHER_POLICIES)
def test_without_a_policy_for_all_nothing_is_judged(tmp_path: Path, policy: str) -> None:
    target = prepare(tmp_path, {"harden.ps1": SCRIPT, f"{STEP}/agent.bin": PROGRAM}, OTHER_POLICIES[policy])
    assert target.own_files == ()
    assert not decide(target).plan.build.signatures


def test_scripts_with_signed_copies_are_judged_once(tmp_path: Path) -> None:
    """The copies count. A program has none, and must be signed itself."""
    policy = POLICY.replace("roots: root.pem", f"own_scripts: {{from: {SIGNED}}}")
    unsigned = {path: SCRIPT + path.encode() for path in good_files() if path.endswith((".ps1", ".psm1"))}
    target = prepare(
        tmp_path, unsigned, policy, "windows.trusted_roots=[root.pem]", "artifacts.signatures.roots=root.pem"
    )
    sign_all(target.loaded, "aws")
    assert decide(target).plan.build.all_signed
    assert sorted(path for one in target.own_files for path in one.data) == [
        *("agent.bin", "agent.cat", "certificate.cer", "run.cmd"),
    ]
    (tmp_path / STEP / "agent.bin").write_bytes(PROGRAM)
    target = pipeline.prepare_target(load_today(tmp_path / "config.yaml", *TRUSTED), "aws")
    with pytest.raises(SignatureError, match="the signature of 1 file is not as the config requires"):
        decide(target)


TRUSTED = ("windows.trusted_roots=[root.pem]", "artifacts.signatures.roots=root.pem")


@pytest.fixture
def run() -> Run:
    return Run({}, {}, datetime.datetime.now(datetime.UTC).isoformat(), console=Console(io.StringIO(), plain=True))


def look_up(target: PreparedTarget, file: Path, run: Run) -> None:
    locking.look_up([target], file, run)


def verify(target: PreparedTarget, file: Path, run: Run) -> None:
    locking.verify_lock(target, StoredLock(file, Lock(), ""), run)


@pytest.mark.parametrize("check", [look_up, verify])
def test_a_lock_and_a_build_judge_them_before_any_download(
    tmp_path: Path, run: Run, check: Callable[[PreparedTarget, Path, Run], None]
) -> None:
    target = prepare(tmp_path, {"harden.ps1": SCRIPT})
    with pytest.raises(SignatureError) as raised:
        check(target, tmp_path / "lock.json", run)
    assert raised.value.details[0].startswith("scripts[0]: harden.ps1 is not signed")
    assert not (tmp_path / "lock.json").exists()


@pytest.mark.parametrize("check", [look_up, verify])
def test_a_lock_and_a_build_know_who_is_revoked_now(
    tmp_path: Path,
    run: Run,
    check: Callable[[PreparedTarget, Path, Run], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    signer, ca = signers().signer.chain[:2]
    url, asked = "https://crl.example.com/ca.crl", []

    def fill(download: Download, file: IO[bytes]) -> Fetched:
        asked.append(download.url)
        data = make_crl(ca, [(signer, signer.read.not_before, None)])
        file.write(data)
        return Fetched(hashlib.sha256(data).hexdigest(), len(data))

    monkeypatch.setattr(Download, "fill", fill)
    target = prepare(tmp_path, {}, POLICY, f"artifacts.signatures.crls=[{url}]")
    with pytest.raises(SignatureError) as raised:
        check(target, tmp_path / "lock.json", run)
    assert " is rejected by artifacts.signatures.signers: revoked: " in raised.value.details[0]
    assert asked == [url]


def test_no_stand_in_takes_the_place_of_an_own_file(tmp_path: Path, run: Run) -> None:
    """The roots of a rehearsal are throw-away roots, and sign no file of the operator's."""
    (tmp_path / "other.pem").write_bytes(signers().stranger.chain[-1].pem)
    environ = {"IMAGEGEN_SIGNING_ROOTS": str(tmp_path / "other.pem")}
    target = prepare(tmp_path)
    rehearsal = dataclasses.replace(run, environ=environ)
    locking._check_own_files([target], rehearsal)
