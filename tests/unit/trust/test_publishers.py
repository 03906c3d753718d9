"""The publishers of scripts that downloads bring: the machine must know them, and the config must name them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.errors import ExitCode
from imagegen.providers.registry import PROVIDERS
from imagegen.trust.record import SignatureError
from imagegen.trust.scripts import LockedDownloads
from tests.signing_support import make_signed_lock, sign_all, sign_scripts_by, signers, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from imagegen.fetch.lock import Lock, LockedSignature
    from imagegen.plan import loading
    from imagegen.plan.resolve import Decision

CALICO = "cni: {plugin: calico, mode: vxlan}\nkube_proxy: none\n"
SIGNERS = "artifacts.signatures.signers="
OURS, STRANGER = "CN=Example Inc", "CN=Stranger"
ROOTS = ("artifacts.signatures.roots=roots.pem",)
SCRIPT = "CalicoWindows/config.ps1"


def make_config(folder: Path, *sets: str) -> loading.Loaded:
    roots = (signers().root, signers().stranger.chain[-1])
    (folder / "roots.pem").write_bytes(b"".join(one.pem for one in roots))
    return write_config(folder, CALICO, sets=(*ROOTS, *sets))


@pytest.fixture(scope="module")
def locks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lock]:
    """By who signed the scripts of the downloads."""
    config = make_config(tmp_path_factory.mktemp("locked"))
    known = {"ours": signers().signer, "stranger": signers().stranger}
    return {name: make_signed_lock(config, "aws", sign_scripts_by(one)) for name, one in known.items()}


def decide(config: loading.Loaded, lock: Lock, target: str = "aws") -> Decision:
    sign_all(config, target)
    return pipeline.decide(pipeline.prepare_target(config, target), lock)


def publishers(decision: Decision) -> set[str]:
    resources = decision.plan.image.phases[0].steps[0].resources
    return {str(one.fields["thumbprint"]) for one in resources if one.fields.get("store") == "TrustedPublisher"}


def refusal(config: loading.Loaded, lock: Lock) -> SignatureError:
    downloads = LockedDownloads(pipeline.prepare_target(config, "aws").signatures, lock.artifacts)
    with pytest.raises(SignatureError) as raised:
        downloads.find_publishers([signers().signer.read])
    assert raised.value.exit_code is ExitCode.VERIFICATION
    return raised.value


def with_changes(lock: Lock, member: str, **changes: Any) -> Lock:  # noqa: ANN401 - fields of a signature
    entry = lock.artifacts["calico"]
    signed: dict[str, LockedSignature] = dict(entry.signed or {})
    signed[member] = signed[member].model_copy(update=changes)
    return lock.model_copy(
        update={"artifacts": {**lock.artifacts, "calico": entry.model_copy(update={"signed": signed})}}
    )


def test_the_signer_of_own_scripts_needs_no_rule_for_those_of_downloads(tmp_path: Path, locks: dict[str, Lock]) -> None:
    lock = locks["ours"]
    decision = decide(make_config(tmp_path), lock)
    assert publishers(decision) == {signers().signer.read.sha1}
    assert decision.plan.build.signatures.keys() > {(lock.artifacts["calico"].members or {})[SCRIPT]}


@pytest.mark.parametrize("target", PROVIDERS)
def test_a_named_signer_of_a_download_becomes_a_publisher(tmp_path: Path, target: str) -> None:
    config = make_config(tmp_path, f'{SIGNERS}["{OURS}", "{STRANGER}"]')
    decision = decide(config, make_signed_lock(config, target, sign_scripts_by(signers().stranger)), target)
    assert publishers(decision) == {signers().signer.read.sha1, signers().stranger.read.sha1}
    assert [data for path, data in decision.bundle.items() if data == signers().stranger.der and path.endswith(".cer")]


def test_the_signer_of_one_override_becomes_a_publisher(tmp_path: Path) -> None:
    override = f"overrides.calico_url={{url: 'https://artifacts.example.com/calico.zip', signer: '{STRANGER}'}}"
    config = make_config(tmp_path, f'{SIGNERS}["{OURS}"]', override)
    decision = decide(config, make_signed_lock(config, "aws", sign_scripts_by(signers().stranger)))
    assert signers().stranger.read.sha1 in publishers(decision)


UNNAMED = {
    "everybody may sign": (
        f"{SIGNERS}[]",
        "list 'CN=Stranger' and everybody else who may sign in artifacts.signatures",
    ),
    "a CA may sign": (
        f'{SIGNERS}["{OURS}", {{issuer: "CN=Other Root"}}]',
        "if they may, add 'CN=Stranger' to artifacts.signatures.signers; "
        "if not, set overrides.calico_url to a copy that your own signer signed",
    ),
    "a CA may sign one override": (
        "overrides.calico_url={url: 'https://artifacts.example.com/c.zip', signer: {issuer: 'CN=Other Root'}}",
        "if they may, set overrides.calico_url.signer to 'CN=Stranger'; ",
    ),
}


@pytest.mark.parametrize("case", UNNAMED)
def test_trust_is_not_widened_to_a_signer_whom_the_config_does_not_name(
    tmp_path: Path, case: str, locks: dict[str, Lock]
) -> None:
    setting, hint = UNNAMED[case]
    config = make_config(tmp_path, setting)
    error = refusal(config, locks["stranger"])
    lines = [line for line in error.details if "hint" not in line]
    assert any(line.startswith(f"calico: {SCRIPT} is signed by CN=Stranger, whom ") for line in lines)
    assert all("every script that this publisher ever signed would run on the nodes" in line for line in lines)
    assert [line for line in error.details if hint in line]


HIDDEN = {
    "catalogue": "is signed only by a catalogue, which PowerShell does not see on the nodes",
    "nested": "is signed only by a nested signature, which PowerShell does not see on the nodes",
}


@pytest.mark.parametrize("by", HIDDEN)
def test_a_signature_that_powershell_does_not_see_is_refused(tmp_path: Path, by: str, locks: dict[str, Lock]) -> None:
    error = refusal(make_config(tmp_path), with_changes(locks["ours"], SCRIPT, by=by))
    assert error.details[0] == f"calico: {SCRIPT} {HIDDEN[by]}"


def test_a_lock_without_the_certificate_or_the_signature_says_how_to_get_it(
    tmp_path: Path, locks: dict[str, Lock]
) -> None:
    config, lock = make_config(tmp_path), locks["ours"]
    error = refusal(config, with_changes(lock, SCRIPT, certificate=None))
    assert error.details == (
        f"the lock does not have the certificate that signed calico: {SCRIPT}",
        "  hint: run `imagegen lock CONFIG --upgrade calico`",
    )
    entry = lock.artifacts["calico"].model_copy(update={"signed": {}})
    error = refusal(config, lock.model_copy(update={"artifacts": {**lock.artifacts, "calico": entry}}))
    assert f"calico: {SCRIPT} has no signature in the lock, and the nodes run only signed scripts" in error.details


def test_a_ca_without_a_name_matches_no_rule(tmp_path: Path, locks: dict[str, Lock]) -> None:
    """A lock is not trusted, and its names may be none."""
    config = make_config(tmp_path, f'{SIGNERS}["{OURS}", {{issuer: "CN=Other Root"}}]')
    lock = locks["stranger"]
    root = (lock.artifacts["calico"].signed or {})[SCRIPT].root.model_copy(update={"subject": "no name"})
    assert refusal(config, with_changes(lock, SCRIPT, root=root)).details
