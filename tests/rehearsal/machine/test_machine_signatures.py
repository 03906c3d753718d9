"""The engine's check of signatures before a file comes into its place, and what the machine's own store trusts."""

from __future__ import annotations

import dataclasses
import io
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.authenticode.model import TrustedRoot
from imagegen.authenticode.trust import read_public_roots
from imagegen.catalog.facts import table
from imagegen.rehearsal.machine.certificates import DISALLOWED, ROOT, TRUSTED_PUBLISHER, Certificate
from imagegen.rehearsal.machine.signatures import show_signature
from tests.authenticode.pki import LATER, NOW, make_ca, make_root, make_signer, pki
from tests.authenticode.signing import Options, sign_pe, sign_script
from tests.authenticode.support import changed, fixture, fixture_trust, judge
from tests.rehearsal.machine.conftest import Bench, sha

if TYPE_CHECKING:
    from collections.abc import Callable

    from imagegen.rehearsal.machine import Machine
    from tests.authenticode.pki import Identity
    from tests.rehearsal.machine.conftest import Fields

FOLDER = r"C:\k"
PROGRAM = fixture("program.exe")
MENDED = "windows.trusted_roots: [FILE]"


def trust(machine: Machine, identity: Identity, store: str = ROOT) -> None:
    machine.certificates.add(Certificate(identity.read.sha1, identity.der), store)


def planned(signer: Identity, clock: Identity | None = None, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of plan.json
    root, timestamp_root = signer.chain[-1].read, clock.chain[-1].read if clock else None
    return {
        "signer": str(signer.read.subject),
        "thumbprint": signer.read.sha256.lower(),
        "root": str(root.subject),
        "root_thumbprint": root.sha256.lower(),
        "timestamp_root": str(timestamp_root.subject) if timestamp_root else None,
        "timestamp_root_thumbprint": timestamp_root.sha256.lower() if timestamp_root else None,
        "hidden": None,
        **changes,
    }


@pytest.fixture
def signing(bench: Bench) -> Bench:
    """A machine that trusts the root of the tests, on a day on which their certificates are valid."""
    bench.machine.date = NOW
    bench.machine.files.make_folder(FOLDER)
    trust(bench.machine, pki().root)
    return bench


def of_file(bench: Bench, data: bytes, path: str) -> tuple[str, Fields]:
    bench.artifact("tool", data)
    return "file", {"path": path, "sha256": sha(data), "source": None, "artifact": "tool"}


def of_archive(bench: Bench, data: bytes, path: str) -> tuple[str, Fields]:
    _pack(bench, data, path)
    members = [{"path": path.rpartition("\\")[2], "sha256": sha(data)}]
    return "archive", {"artifact": "tool", "into": FOLDER, "strip": 1, "members": members}


def of_member(bench: Bench, data: bytes, path: str) -> tuple[str, Fields]:
    member = _pack(bench, data, path)
    return "extract", {"path": path, "sha256": sha(data), "artifact": "tool", "member": member}


def of_bundle(bench: Bench, data: bytes, path: str) -> tuple[str, Fields]:
    return "file", bench.file(path, data)


def _pack(bench: Bench, data: bytes, path: str) -> str:
    name = f"bin/{path.rpartition(chr(92))[2]}"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    bench.artifact("tool", buffer.getvalue())
    return name


WAYS: tuple[Callable[[Bench, bytes, str], tuple[str, Fields]], ...] = (of_file, of_archive, of_member, of_bundle)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["tool.exe", "tool.ps1"])
def test_a_signed_file_comes_into_its_place_and_the_report_says_who_checked_it(
    signing: Bench, way: Callable[[Bench, bytes, str], tuple[str, Fields]], name: str
) -> None:
    data = sign(name)
    signing.signatures[sha(data)] = planned(pki().signer)
    resource = way(signing, data, rf"{FOLDER}\{name}")
    signing.bundle({"phase-1": [resource]})
    signing.done("phase-1")
    assert signing.machine.files.read(rf"{FOLDER}\{name}") == data
    assert signing.kept("report.json")["signatures"] == {sha(data): "machine"}
    assert signing.kept("state.json")["signatures"] == [sha(data)]


def sign(name: str = "tool.exe", signer: Identity | None = None, options: Options | None = None) -> bytes:
    signer = signer or pki().signer
    if name.endswith(".ps1"):
        return sign_script(b"Write-Output 1\n", signer, options)
    return sign_pe(PROGRAM, signer, options)


OTHER = make_signer(pki().ca, "O=Other Inc, CN=Other Inc")
ELSEWHERE = make_signer(make_ca(make_root("O=Else, CN=Else Root")), "O=Else, CN=Else Inc")


STAMPED = Options(timestamps=[pki().clock])


def distrust(machine: Machine) -> None:
    trust(machine, pki().signer, DISALLOWED)


def forget_root(machine: Machine) -> None:
    machine.certificates.remove(pki().root.read.sha1, ROOT)


def grow_old(machine: Machine) -> None:
    machine.date = LATER


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The bytes, whose signature the plan has, what happened to the machine, and what the engine says."""

    data: bytes
    says: str
    wanted: Identity = dataclasses.field(default_factory=lambda: pki().signer)
    clock: Identity | None = None
    spoil: Callable[[Machine], object] = lambda machine: machine


REFUSED = {
    "not signed": Refusal(PROGRAM, "is not signed, and the plan has a signature of CN=Example Inc"),
    "altered": Refusal(changed(sign(), 0x410), "was changed after CN=Example Inc, O=Example Inc, C=US signed it"),
    "another signer": Refusal(
        sign(signer=OTHER), "is signed by CN=Other Inc, O=Other Inc, not with the certificate of CN=Example Inc"
    ),
    "a missing root": Refusal(
        sign(signer=ELSEWHERE),
        f"is signed below CN=Else Root, O=Else, a root that this machine neither has nor could fetch: save the "
        f"certificate with the sha256 {ELSEWHERE.chain[-1].read.sha256.lower()} beside the config, and add {MENDED}",
        ELSEWHERE,
    ),
    "a root that is gone": Refusal(sign(), MENDED, spoil=forget_root),
    "a missing root of the timestamp": Refusal(
        sign(options=STAMPED),
        "is timestamped below CN=Example Clock Root, O=Example, a root that this machine neither has nor could fetch: "
        f"save the certificate with the sha256 {pki().clock_root.read.sha256.lower()} beside the config, and add "
        f"{MENDED}",
        clock=pki().clock,
    ),
    "both roots missing": Refusal(
        sign(signer=ELSEWHERE, options=STAMPED), "is signed below CN=Else Root, O=Else", ELSEWHERE, pki().clock
    ),
    "a timestamp that is wrong": Refusal(
        sign(options=Options(timestamps=[OTHER])),
        'does not accept (UnknownError): the timestamp by "Other Inc" is not valid',
        clock=pki().signer,
    ),
    "a distrusted signer": Refusal(
        sign(), "is signed by CN=Example Inc, O=Example Inc, C=US, which this Windows", spoil=distrust
    ),
    "expired": Refusal(sign(), "that Windows does not accept (UnknownError): ", spoil=grow_old),
    "a script without a signature": Refusal(b"Write-Output 1\n", "is not signed, and the plan has"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_windows_does_not_accept_is_not_put_into_its_place(
    signing: Bench, case: str, way: Callable[[Bench, bytes, str], tuple[str, Fields]]
) -> None:
    refusal = REFUSED[case]
    path = rf"{FOLDER}\tool.ps1" if refusal.data.startswith(b"Write") else rf"{FOLDER}\tool.exe"
    signing.signatures[sha(refusal.data)] = planned(refusal.wanted, refusal.clock)
    signing.bundle({"phase-1": [way(signing, refusal.data, path)]})
    refusal.spoil(signing.machine)
    outcome = signing.run("phase-1")
    assert outcome.exit_code == 4
    assert path in outcome.output
    assert refusal.says in outcome.output
    assert not signing.machine.files.exists(path)
    assert not signing.machine.files.exists(path + ".new")


def test_each_run_checks_the_scripts_before_their_publisher_is_trusted(signing: Bench) -> None:
    signer = pki().signer
    altered = sign("tool.ps1").replace(b"Write-Output 1", b"Write-Output 2")
    signing.text("tool.ps1", altered)
    signing.signatures[sha(altered)] = planned(signer)
    certificate = {
        "store": TRUSTED_PUBLISHER.rpartition("\\")[2],
        "source": signing.text("publisher.cer", signer.der),
        "subject": str(signer.read.subject),
        "thumbprint": signer.read.sha1,
        "sha256": sha(signer.der),
    }
    signing.bundle({"phase-1": [("certificate", certificate)]})
    for _ in range(2):
        outcome = signing.run("phase-1")
        assert outcome.exit_code == 4
        assert "tool.ps1 was changed after" in outcome.output
        assert signing.machine.certificates.find(signer.read.sha1, TRUSTED_PUBLISHER) is None


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("package.msi", 4, "agent.msi is not signed"),
        # The model's installer knows only stand-ins of packages.
        ("signed.msi", 6, "msiexec ended with 1620"),
    ],
)
def test_an_installer_is_checked_before_it_runs(signing: Bench, name: str, code: int, says: str) -> None:
    package, root = fixture(name), read_certificate(read_pem(fixture("root.pem"))[0])
    (shown,) = judge(fixture("signed.msi"), "x.msi", fixture_trust()).signatures
    assert shown.signer
    signing.machine.certificates.add(Certificate(root.sha1, root.der), ROOT)
    signing.artifact("agent", package)
    signing.signatures[sha(package)] = {
        **planned(pki().signer),
        "thumbprint": shown.signer.sha256.lower(),
        "root_thumbprint": root.sha256.lower(),
    }
    fields = {"artifact": "agent", "product": "Agent", "version": "1.2.3", "files": [], "services": [], "arguments": []}
    signing.bundle({"phase-1": [("package", fields)]})
    outcome = signing.run("phase-1")
    assert (outcome.exit_code, says in outcome.output) == (code, True)


@pytest.mark.parametrize("hidden", ["nested", "catalogue"])
def test_what_windows_does_not_show_is_decided_by_the_host_and_the_report_says_so(signing: Bench, hidden: str) -> None:
    data = PROGRAM
    signing.signatures[sha(data)] = planned(pki().signer, hidden=hidden)
    signing.bundle({"phase-1": [of_file(signing, data, rf"{FOLDER}\tool.exe")]})
    signing.done("phase-1")
    assert signing.kept("report.json")["signatures"] == {sha(data): "host"}


def test_a_file_without_a_signature_in_the_plan_is_not_checked(signing: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagegen.rehearsal.machine.signatures.show_signature", pytest.fail)
    signing.bundle({"phase-1": [of_file(signing, PROGRAM, rf"{FOLDER}\tool.exe")]})
    signing.done("phase-1")
    assert signing.kept("report.json")["signatures"] == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_a_plan_with_signatures_does_not_know_is_refused(
    signing: Bench, way: Callable[[Bench, bytes, str], tuple[str, Fields]]
) -> None:
    """The plan has a signature, or says that there is none to check, for each file that it puts on the machine."""
    other = sign("other.exe")
    signing.signatures[sha(other)] = planned(pki().signer)
    signing.bundle({"phase-1": [way(signing, PROGRAM, rf"{FOLDER}\tool.exe")]})
    outcome = signing.run("phase-1")
    assert (outcome.exit_code, "the plan requires signatures, and knows no file" in outcome.output) == (4, True)
    assert not signing.machine.files.exists(rf"{FOLDER}\tool.exe")
    signing.signatures[sha(PROGRAM)] = None
    signing.bundle({"phase-1": [way(signing, PROGRAM, rf"{FOLDER}\tool.exe")]})
    signing.done("phase-1")
    assert signing.kept("report.json")["signatures"] == {sha(other): "host"}


def test_a_check_of_an_earlier_run_counts(signing: Bench) -> None:
    """The second run finds the file as planned, and checks nothing."""
    data = sign()
    signing.signatures[sha(data)] = planned(pki().signer)
    signing.bundle({"phase-1": [of_file(signing, data, rf"{FOLDER}\tool.exe")], "phase-2": []})
    signing.done("phase-1")
    signing.done("phase-2")
    assert signing.kept("report.json")["signatures"] == {sha(data): "machine"}


def test_a_file_that_was_there_before_was_not_checked_on_the_machine(signing: Bench) -> None:
    data = sign()
    signing.machine.files.write(rf"{FOLDER}\tool.exe", data)
    signing.signatures[sha(data)] = planned(pki().signer)
    signing.bundle({"phase-1": [of_file(signing, data, rf"{FOLDER}\tool.exe")]})
    signing.done("phase-1")
    assert signing.kept("report.json")["signatures"] == {sha(data): "host"}


def test_a_root_of_the_config_is_there_before_what_it_signed(signing: Bench) -> None:
    data = sign(signer=ELSEWHERE)
    root = ELSEWHERE.chain[-1]
    signing.signatures[sha(data)] = planned(ELSEWHERE)
    certificate = {
        "store": "Root",
        "thumbprint": root.read.sha1,
        "subject": "CN=Else Root",
        "sha256": sha(root.der),
        "source": signing.text("root.cer", root.der),
    }
    signing.bundle({"phase-1": [("certificate", certificate), of_file(signing, data, rf"{FOLDER}\tool.exe")]})
    signing.done("phase-1")
    assert signing.kept("report.json")["signatures"] == {sha(data): "machine"}


def test_a_timestamp_whose_root_is_there_outlives_the_certificate(signing: Bench) -> None:
    data = sign(options=STAMPED)
    trust(signing.machine, pki().clock_root)
    grow_old(signing.machine)
    signing.signatures[sha(data)] = planned(pki().signer, pki().clock)
    signing.bundle({"phase-1": [of_file(signing, data, rf"{FOLDER}\tool.exe")]})
    signing.done("phase-1")
    assert signing.kept("report.json")["signatures"] == {sha(data): "machine"}


def test_a_stock_windows_trusts_only_what_it_needs_itself(stock: Machine) -> None:
    rows = table("roots")["stock"].values()
    assert stock.certificates.thumbprints(ROOT) == {row["thumbprint"] for row in rows}
    public = {root.certificate.sha1: root.certificate.subject for root in read_public_roots()[0]}
    found = {str(public[thumbprint]) for thumbprint in stock.certificates.thumbprints(ROOT)}
    # Of all public CAs, only the one with which old Windows was timestamped.
    (other,) = [name for name in found if "Microsoft" not in name]
    assert "CN=Thawte Timestamping CA" in other
    assert len(found) < len(public) / 10


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roots of the tests stand for roots that are on Microsoft's list."""
    roots = (ELSEWHERE.chain[-1], pki().root, pki().clock_root)
    listed = (tuple(TrustedRoot(one.read) for one in roots), "a list of the test")
    monkeypatch.setattr("imagegen.rehearsal.machine.signatures.read_public_roots", lambda: listed)


@pytest.mark.usefixtures("public")
@pytest.mark.parametrize(
    ("signer", "options", "fetched"),
    [
        (ELSEWHERE, None, {ELSEWHERE.chain[-1]}),
        (pki().signer, STAMPED, {pki().clock_root}),
        (ELSEWHERE, STAMPED, {ELSEWHERE.chain[-1], pki().clock_root}),
    ],
    ids=["of the signature", "of the timestamp", "of both"],
)
def test_a_machine_with_windows_update_fetches_public_roots(
    signing: Bench, signer: Identity, options: Options | None, fetched: set[Identity]
) -> None:
    machine = signing.machine
    data, before = sign(signer=signer, options=options), machine.certificates.thumbprints(ROOT)
    assert show_signature(machine, data, "tool.exe").status == "UnknownError"
    machine.fetches_roots = True
    assert show_signature(machine, data, "tool.exe").status == "Valid"
    assert machine.certificates.thumbprints(ROOT) - before == {one.read.sha1 for one in fetched}


@pytest.mark.usefixtures("public")
def test_a_root_that_is_there_is_not_fetched_again(signing: Bench) -> None:
    """The timestamp stays wrong, however often its root is fetched."""
    signing.machine.fetches_roots = True
    data = sign(options=Options(timestamps=[OTHER]))
    assert show_signature(signing.machine, data, "tool.exe").status == "UnknownError"
