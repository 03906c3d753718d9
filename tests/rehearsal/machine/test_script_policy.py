"""PowerShell under the execution policy AllSigned: which scripts the machine runs, wherever they are started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imagegen.rehearsal.boot.model import Process
from imagegen.rehearsal.boot.shell import Shell
from imagegen.rehearsal.machine.certificates import DISALLOWED, ROOT, TRUSTED_PUBLISHER, Certificate
from imagegen.rehearsal.machine.registry import Value
from imagegen.rehearsal.machine.script_policy import POLICY, find_refusal
from tests.authenticode.pki import NOW, make_signer, pki
from tests.authenticode.signing import sign_script
from tests.rehearsal.machine.conftest import sha

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.machine import Machine
    from tests.authenticode.pki import Identity
    from tests.rehearsal.machine.conftest import Bench

SCRIPT = r"C:\k\script.ps1"
TEXT = b"Write-Output ran\n"
STRANGER = make_signer(pki().ca, "O=Stranger, CN=Stranger")


def add(machine: Machine, identity: Identity, store: str) -> None:
    machine.certificates.add(Certificate(identity.read.sha1, identity.der), store)


def set_policy(machine: Machine, policy: str | None = "AllSigned", *, enabled: int = 1) -> None:
    machine.registry.make_key(POLICY)
    machine.registry.write(POLICY, "EnableScripts", Value("DWord", enabled))
    if policy is not None:
        machine.registry.write(POLICY, "ExecutionPolicy", Value("String", policy))


def signed(data: bytes = TEXT) -> bytes:
    return sign_script(data, pki().signer)


@pytest.fixture
def bound(bench: Bench) -> Bench:
    """A machine with the policy, which trusts the signer of the tests."""
    machine = bench.machine
    machine.date = NOW
    machine.files.make_folder(r"C:\k")
    add(machine, pki().root, ROOT)
    add(machine, pki().signer, TRUSTED_PUBLISHER)
    set_policy(machine)
    return bench


def lose_root(machine: Machine) -> None:
    machine.certificates.remove(pki().root.read.sha1, ROOT)


REFUSED: dict[str, tuple[bytes, Callable[[Machine], object], str]] = {
    "unsigned": (TEXT, lambda m: m, "it is not signed, and the policy of the machine is AllSigned"),
    "altered": (signed().replace(b"ran", b"bad"), lambda m: m, "its signature is not valid: "),
    "a stranger": (
        sign_script(TEXT, STRANGER),
        lambda m: m,
        "its publisher CN=Stranger, O=Stranger is not in the store TrustedPublisher",
    ),
    "a distrusted publisher": (
        signed(),
        lambda m: add(m, pki().signer, DISALLOWED),
        "a certificate is in the store Disallowed",
    ),
    "a root that is missing": (signed(), lose_root, "its signature is not valid: "),
    "no scripts at all": (signed(), lambda m: set_policy(m, enabled=0), "the policy of the machine allows no scripts"),
    "restricted": (signed(), lambda m: set_policy(m, "Restricted"), "the policy of the machine allows no scripts"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_script_that_the_policy_refuses(bound: Bench, case: str) -> None:
    data, spoil, says = REFUSED[case]
    bound.machine.files.write(SCRIPT, data)
    spoil(bound.machine)
    assert says in find_refusal(bound.machine, SCRIPT)


def test_the_policy_is_about_scripts_that_are_signed_by_a_trusted_publisher(bound: Bench) -> None:
    machine = bound.machine
    machine.files.write(SCRIPT, signed())
    machine.files.write(r"C:\k\run.cmd", b"echo 1")
    assert [find_refusal(machine, path) for path in (SCRIPT, r"C:\k\run.cmd")] == ["", ""]
    machine.files.write(SCRIPT, TEXT)
    set_policy(machine, "RemoteSigned")
    assert find_refusal(machine, SCRIPT) == ""


@pytest.mark.parametrize("option", [(), ("-ExecutionPolicy", "Bypass"), ("-ExecutionPolicy", "RemoteSigned")])
def test_no_option_of_a_command_line_overrides_the_policy(bound: Bench, option: tuple[str, ...]) -> None:
    """cloudbase-init passes RemoteSigned, and the guides of most programs Bypass."""
    machine, shell = bound.machine, Shell({}, [])
    line = ("powershell.exe", "-NoProfile", *option, "-File", SCRIPT)
    machine.files.write(SCRIPT, TEXT)
    ended = shell.run(Process(machine, line))
    assert (ended.exit_code, f"{SCRIPT} cannot be loaded: it is not signed" in ended.output) == (1, True)
    machine.files.write(SCRIPT, signed())
    ended = shell.run(Process(machine, line))
    assert (ended.exit_code, ended.output) == (0, "")


def sign_bundle(bench: Bench) -> None:
    """Sign the engine's files, and no file of a step."""
    own = bench.texts.keys()
    bench.contents = {
        name: data if name in own else sign_script(data, pki().signer) for name, data in bench.contents.items()
    }
    bench.plan["files"] = {name: sha(data) for name, data in bench.contents.items()}
    bench.upload()


def test_the_engine_loads_only_signed_modules_and_kinds(bound: Bench) -> None:
    bound.bundle({"phase-1": [bound.value("Value")]})
    sign_bundle(bound)
    bound.done("phase-1")
    bound.contents["kinds/registry.ps1"] = b"@{}"
    bound.plan["files"]["kinds/registry.ps1"] = sha(b"@{}")
    bound.upload()
    outcome = bound.run("phase-1")
    assert outcome.exit_code == 1
    assert r"bundle\kinds\registry.ps1 cannot be loaded: it is not signed" in outcome.output


def test_the_policy_is_in_force_from_the_step_that_sets_it(bench: Bench) -> None:
    """The first phase begins without it, and the second one refuses what is not signed."""
    machine = bench.machine
    machine.date = NOW
    add(machine, pki().root, ROOT)
    add(machine, pki().signer, TRUSTED_PUBLISHER)
    values = [("EnableScripts", "DWord", 1), ("ExecutionPolicy", "String", "AllSigned")]
    policy = [("registry", {"key": POLICY, "name": name, "type": kind, "data": data}) for name, kind, data in values]
    bench.bundle({"phase-1": policy, "phase-2": []})
    bench.done("phase-1")
    outcome = bench.run("phase-2")
    assert (outcome.exit_code, "engine.psm1 cannot be loaded: it is not signed" in outcome.output) == (1, True)


@pytest.mark.parametrize(("data", "code"), [(TEXT, 6), (signed(), 0)], ids=["unsigned", "signed"])
def test_a_script_of_the_operator_must_be_signed(bound: Bench, data: bytes, code: int) -> None:
    named = {"name": "01-harden.ps1", "source": bound.text("harden.ps1", data), "sha256": sha(data)}
    bound.bundle({"phase-1": [("script", {**named, "arguments": [], "good_exit_codes": [0], "timeout_s": 60})]})
    sign_bundle(bound)
    outcome = bound.run("phase-1")
    assert outcome.exit_code == code
    assert (r"harden.ps1 cannot be loaded: it is not signed" in outcome.output) == bool(code)
