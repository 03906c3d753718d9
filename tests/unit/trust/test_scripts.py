"""The signed copies of an image's scripts: every script has one, each is imagegen's own apart from its signature, and
each is signed by somebody whom the machine trusts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imagegen import pipeline
from imagegen.base.errors import ConfigError, VerificationError
from imagegen.providers.provider import provider
from imagegen.providers.registry import PROVIDERS
from imagegen.trust.block import is_script, is_signed, without_signature
from imagegen.trust.sources import CrlUse
from tests.authenticode.pki import CODE, issue, make_crl
from tests.authenticode.signing import Options, sign_script
from tests.conftest import REPOSITORY, load_today, make_test_lock
from tests.signing_support import SIGNED, listed, sign_all, signers, write_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imagegen.plan import loading
    from imagegen.plan.resolve import Decision

DOCKER = REPOSITORY / "tests" / "data" / "docker.yaml"
MAXIMAL = REPOSITORY / "tests" / "golden" / "maximal.yaml"


def decide(config: loading.Loaded, target: str) -> Decision:
    return pipeline.decide(pipeline.prepare_target(config, target), make_test_lock(config, target))


def sent(decision: Decision, target: str) -> dict[str, bytes]:
    """The scripts of the bundle and of the tree. What the cloud's agent runs as text is none of them."""
    boot_files = provider(target).boot_files
    files = {**decision.bundle, **decision.scripts, **decision.helpers}
    return {path: data for path, data in files.items() if is_script(path) and path.split("/")[-1] not in boot_files}


@pytest.mark.parametrize("target", PROVIDERS)
def test_the_list_has_every_script_that_reaches_the_machine(tmp_path: Path, target: str) -> None:
    own = b"Write-Output own\n"
    (tmp_path / "own.ps1").write_bytes(own)
    config = write_config(tmp_path, "ssh: {}\ncni: {plugin: win-overlay, vni: 5000}\nscripts: [own.ps1]\n")
    sign_all(config, target)
    found = sent(decide(config, target), target)
    assert found.keys() == {script.path for script in listed(config, target)}
    assert all(is_signed(data) for data in found.values())
    assert {"start.ps1", "engine.psm1", "kinds/certificate.ps1", "logs.ps1", f"{target}/generalise.ps1"} < found.keys()
    assert {"files/cni/set-pod-network.ps1", "files/ssh/add-ssh-server.ps1"} < found.keys()
    assert [path for path, data in found.items() if without_signature(data) == own]


@pytest.mark.parametrize("file", [MAXIMAL, DOCKER], ids=lambda file: file.stem)
def test_the_list_of_a_config_without_the_key_is_that_of_its_signed_image(file: Path) -> None:
    """An operator lists and signs before the config has the folder."""
    config = load_today(file)
    names = {script.path for script in listed(config, "aws")}
    planned = sent(decide(config, "aws"), "aws").keys()
    assert planned <= names
    assert names - planned <= {"kinds/certificate.ps1"}


@pytest.mark.parametrize("target", PROVIDERS)
def test_the_image_has_the_signed_bytes_and_trusts_their_signer(tmp_path: Path, target: str) -> None:
    config = write_config(tmp_path)
    sign_all(config, target)
    first = decide(config, target)
    fields: list[dict[str, Any]] = [r.fields for r in first.plan.image.phases[0].steps[0].resources]
    stores = {(one["store"], one["thumbprint"]) for one in fields if "store" in one}
    assert stores == {("Root", signers().root.read.sha1), ("TrustedPublisher", signers().signer.read.sha1)}
    assert fields[-1]["data"] == "AllSigned"
    assert set(first.plan.build.signatures) == {
        first.plan.image.files[path] for path in first.bundle if is_script(path)
    }
    sign_all(config, target, change_one(PATH, lambda _: sign_script(TEXT, signers().signer)))
    again = decide(config, target)
    assert again.plan.image_id != first.plan.image_id


def test_the_plan_has_the_root_of_a_timestamp(tmp_path: Path) -> None:
    clock_root = signers().clock.chain[-1]
    (tmp_path / "clock.pem").write_bytes(clock_root.pem)
    config = write_config(tmp_path, sets=("windows.trusted_roots=[root.pem, clock.pem]",))
    sign_all(config, "aws", change_one(PATH, lambda _: sign_script(TEXT, signers().signer, signers().stamped)))
    plan = decide(config, "aws").plan
    signatures = {path: plan.build.signatures[plan.image.files[path]] for path in (PATH, "engine.psm1")}
    assert {path: (one.timestamp_root, one.timestamp_root_thumbprint) for path, one in signatures.items()} == {
        PATH: ("CN=Example Clock Root", clock_root.read.sha256.lower()),
        "engine.psm1": (None, None),
    }


@pytest.mark.parametrize("target", PROVIDERS)
def test_no_command_of_the_tree_has_a_policy_of_its_own(tmp_path: Path, target: str) -> None:
    config = write_config(tmp_path, "ssh: {}\n")
    sign_all(config, target)
    decision = decide(config, target)
    values = json.loads(pipeline.render_tree(decision)["image.auto.pkrvars.json"])
    assert "-ExecutionPolicy" not in json.dumps(values["guest"])
    assert "-ExecutionPolicy" not in json.dumps(decision.plan.as_json())
    assert [path for path, data in decision.bundle.items() if b"ExecutionPolicy Bypass" in data] == []


def change_one(path: str, how: Callable[[bytes], bytes | None]) -> Callable[[str, bytes], bytes | None]:
    return lambda found, data: how(data) if found == path else data


PATH = "kinds/registry.ps1"
TEXT = (REPOSITORY / "packer" / "guest" / "kinds" / "registry.ps1").read_bytes()
SELF_SIGNED = issue("CN=Self", usages=[CODE], valid=(signers().root.read.not_before, signers().root.read.not_after))

FAULTS: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "missing": (lambda _: None, f"/{SIGNED} has no signed copy of it"),
    "not signed": (lambda _: TEXT, f"/{SIGNED}/{PATH} is not signed"),
    "another text": (
        lambda _: sign_script(TEXT + b"# mine\n", signers().signer),
        f"/{SIGNED}/{PATH} has another text: it is of another version of imagegen, or was changed before it was signed",
    ),
    "changed line ends": (
        lambda _: sign_script(TEXT.replace(b"\n", b"\r\n"), signers().signer),
        f"/{SIGNED}/{PATH} has another text",
    ),
    "a signature of another script": (
        lambda _: TEXT + sign_script(b"Write-Output 1\n", signers().signer)[len(b"Write-Output 1\n") :],
        f"/{SIGNED}/{PATH} has an invalid signature: altered: the file was changed after it was signed",
    ),
    "a broken block": (
        lambda data: data.replace(b"End signature", b"End"),
        f"/{SIGNED}/{PATH} has an invalid signature: altered: ",
    ),
    "a weak digest": (
        lambda _: sign_script(TEXT, signers().signer, Options(digest="sha1")),
        f"/{SIGNED}/{PATH} has an invalid signature: weak digest: ",
    ),
    "another root": (
        lambda _: sign_script(TEXT, signers().stranger),
        f"/{SIGNED}/{PATH} has an invalid signature: untrusted: ",
    ),
    "self-signed": (
        lambda _: sign_script(TEXT, SELF_SIGNED),
        f"/{SIGNED}/{PATH} has an invalid signature: untrusted: ",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_copy_that_powershell_would_refuse_is_named(tmp_path: Path, case: str) -> None:
    how, says = FAULTS[case]
    config = write_config(tmp_path)
    sign_all(config, "aws", change_one(PATH, how))
    with pytest.raises(VerificationError) as raised:
        decide(config, "aws")
    assert raised.value.message == "1 script cannot run under the execution policy AllSigned"
    (detail,) = raised.value.details
    assert detail.startswith(f"{PATH}: ")
    assert says in detail
    assert "imagegen sign-list " in raised.value.hint


def test_only_the_signers_of_the_config_count(tmp_path: Path) -> None:
    config = write_config(tmp_path, sets=('artifacts.signatures.signers=["CN=Somebody"]',))
    sign_all(config, "aws")
    with pytest.raises(VerificationError) as raised:
        decide(config, "aws")
    assert (
        'by CN=Example Inc, O=Example Inc, who is not an allowed signer: CN is "Example Inc"' in raised.value.details[0]
    )
    config = write_config(tmp_path, sets=('artifacts.signatures.signers=["O=Example Inc"]',))
    assert decide(config, "aws").plan.build.all_signed


def test_all_missing_scripts_are_counted_and_the_first_ones_named(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    count = len(listed(config, "aws"))
    with pytest.raises(VerificationError) as raised:
        decide(config, "aws")
    assert raised.value.message == f"{count} scripts cannot run under the execution policy AllSigned"
    assert raised.value.details[-1] == f"and {count - 20} more"


@pytest.mark.parametrize("roots", ["[]", "[other.pem]"])
def test_a_root_that_the_machine_does_not_have_is_named(tmp_path: Path, roots: str) -> None:
    """The host trusts it, by a list of its own, and the machine would not."""
    (tmp_path / "other.pem").write_bytes(signers().stranger.chain[-1].pem)
    sets = (f"windows.trusted_roots={roots}", "artifacts.signatures.roots=root.pem")
    config = write_config(tmp_path, sets=sets)
    sign_all(config, "aws")
    with pytest.raises(VerificationError) as raised:
        decide(config, "aws")
    assert raised.value.details[0].endswith(
        "by CN=Example Inc, O=Example Inc below CN=Example Root, which the machine does not trust: "
        "add that root to windows.trusted_roots"
    )
    config = write_config(tmp_path, sets=("artifacts.signatures.roots=root.pem",))
    assert decide(config, "aws").plan.build.all_signed


def test_only_the_listed_roots_count(tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_bytes(signers().stranger.chain[-1].pem)
    config = write_config(tmp_path, sets=("artifacts.signatures.roots=other.pem",))
    sign_all(config, "aws")
    with pytest.raises(VerificationError) as raised:
        decide(config, "aws")
    assert f'{PATH} has an invalid signature: untrusted: the certificate of "CN=Example Root" is missing' in "".join(
        raised.value.details
    )


def test_a_signer_that_a_file_revokes_is_named(tmp_path: Path) -> None:
    signer, ca = signers().signer.chain[:2]
    (tmp_path / "ca.crl").write_bytes(make_crl(ca, [(signer, signer.read.not_before, None)]))
    config = write_config(tmp_path, sets=("artifacts.signatures.crls=[ca.crl]",))
    sign_all(config, "aws")
    with pytest.raises(VerificationError) as raised:
        decide(config, "aws")
    assert " has an invalid signature: revoked: " in raised.value.details[0]


def test_the_lists_that_a_build_has_downloaded_count(tmp_path: Path) -> None:
    signer, ca, _ = signers().signer.chain
    url = "https://ca.example.com/signing.crl"
    config = write_config(tmp_path, sets=(f'artifacts.signatures.crls=["{url}"]',))
    sign_all(config, "aws")
    # A plan downloads nothing.
    assert decide(config, "aws").plan.build.all_signed
    target, lock = pipeline.prepare_target(config, "aws"), make_test_lock(config, "aws")
    assert pipeline.decide(target, lock, CrlUse({url: make_crl(ca)})).plan.build.all_signed
    revoking = CrlUse({url: make_crl(ca, [(signer, signer.read.not_before, None)])})
    with pytest.raises(VerificationError) as raised:
        pipeline.decide(target, lock, revoking)
    assert " has an invalid signature: revoked: " in raised.value.details[0]


def test_a_copy_may_have_any_name_and_folder(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    sign_all(config, "aws")
    folder = tmp_path / SIGNED
    (folder / PATH).rename(folder / "signed registry.PS1")
    assert decide(config, "aws").plan.build.all_signed


def test_an_own_script_that_is_signed_needs_no_copy(tmp_path: Path) -> None:
    (tmp_path / "own.ps1").write_bytes(sign_script(b"Write-Output own\n", signers().signer))
    config = write_config(tmp_path, "scripts: [own.ps1]\n")
    sign_all(config, "aws", lambda path, data: None if "own-" in path else data)
    assert decide(config, "aws").plan.build.all_signed


@pytest.mark.parametrize("link", [SIGNED, f"{SIGNED}/{PATH}"])
def test_no_link_leads_out_of_the_folder_of_the_config(tmp_path: Path, link: str) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    config = write_config(folder)
    sign_all(config, "aws")
    (folder / link).rename(tmp_path / "elsewhere")
    (folder / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises((ConfigError, VerificationError)) as raised:
        decide(config, "aws")
    problems = [problem.message for problem in raised.value.problems]
    assert [f"{folder / SIGNED} is outside {folder}"] == problems or f"{PATH}: " in raised.value.details[0]


def test_what_is_read_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(tmp_path)
    sign_all(config, "aws")
    (tmp_path / SIGNED / "large.ps1").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(VerificationError, match="is too large"):
        decide(config, "aws")
    monkeypatch.setattr("imagegen.trust.scripts._MOST", 3)
    with pytest.raises(VerificationError, match="at most 3 are allowed"):
        decide(config, "aws")
