"""Real files: those in archives, beside a catalogue and inside an MSI. The policy cases are in tests/signatures."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.certificates import read_certificate, read_pem
from imagegen.authenticode.cms import PE_IMAGE
from imagegen.authenticode.files import PortableExecutable
from imagegen.authenticode.signer import parse_signer
from imagegen.base.errors import VerificationError
from imagegen.fetch.lock import WHOLE_FILE, LockedIssuer
from imagegen.inspect.archive import OpenedArtifact, read_members
from imagegen.trust.judge import check_signatures
from imagegen.trust.policy import SignatureRequest
from imagegen.trust.record import CheckedSignatures
from imagegen.trust.sources import CrlUse
from tests.authenticode.pki import make_signer, pki
from tests.authenticode.signing import make_catalogue, sign_pe
from tests.authenticode.support import fixture, fixture_trust, trust

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imagegen.authenticode.model import Trust

FLAT = "de351a42-8e59-11d0-8c47-00c04fc295ee"
SCRIPT = b"Write-Output 'Hello'\r\n"
TEXT = b"only text"


class Some:
    """Some files, each under its own name."""

    def __init__(self, *paths: str) -> None:
        self._paths = paths

    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        found = self._paths or [WHOLE_FILE] if members is None else self._paths or members
        return {path: frozenset({path.rpartition("/")[2] or "setup.msi"}) for path in found}


def check(
    folder: Path,
    data: bytes,
    *used: str,
    signers: tuple[object, ...] = (),
    judge: Trust | None = None,
) -> CheckedSignatures:
    file = folder / "artifact"
    file.write_bytes(data)
    is_zip = data.startswith(b"PK")
    artifact = (
        OpenedArtifact("agent", file, "zip", read_members(file, "zip", "agent"))
        if is_zip
        else OpenedArtifact("agent", file)
    )
    rules = tuple(map(parse_signer, signers))
    request = SignatureRequest("agent", Some(*used), rules, "artifacts.signatures.signers", "overrides.agent_url")
    found = check_signatures(request, artifact, judge or trust(), folder, CrlUse())
    # Nothing of what was unpacked is left.
    assert [path.name for path in folder.iterdir()] == ["artifact"]
    return found


def archive(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as held:
        for name, data in files.items():
            held.writestr(name.replace("_", "."), data)
    return buffer.getvalue()


def catalogue(*, signer: str = "") -> bytes:
    """A catalogue of the program and the script."""
    program = PortableExecutable(io.BytesIO(fixture("program.exe"))).digest("sha256")
    rows = [(PE_IMAGE, "sha256", program), (FLAT, "sha256", hashlib.sha256(SCRIPT).digest())]
    return make_catalogue(rows, make_signer(pki().ca, signer) if signer else pki().signer)


def test_a_catalogue_signs_for_the_files_beside_it(tmp_path: Path) -> None:
    data = archive(program_exe=fixture("program.exe"), run_ps1=SCRIPT, agent_cat=catalogue(), read_me=TEXT)
    found = check(tmp_path, data, signers=("CN=Example Inc",))
    assert found.problems == ()
    assert {path: one.by for path, one in found.signed.items()} == {
        **{"program.exe": "catalogue", "run.ps1": "catalogue", "agent.cat": "own"},
    }
    assert found.not_programs == ["read.me"]


def test_a_catalogue_counts_for_a_file_that_is_taken_without_it(tmp_path: Path) -> None:
    data = archive(program_exe=fixture("program.exe"), other_exe=fixture("program.exe")[:-1], agent_cat=catalogue())
    assert list(check(tmp_path, data, "program.exe").signed) == ["program.exe"]


@pytest.mark.parametrize("others", [0, 1])
def test_a_catalogue_of_somebody_else_does_not_count_and_hides_none(tmp_path: Path, others: int) -> None:
    somebody = catalogue(signer="C=US, O=Somebody, CN=Somebody")
    files = {"a_cat": somebody, "program_exe": fixture("program.exe"), **({"z_cat": catalogue()} if others else {})}
    found = check(tmp_path, archive(**files), "program.exe", signers=("CN=Example Inc",))
    if others:
        assert found.signed["program.exe"].by == "catalogue"
    else:
        (problem,) = found.problems
        assert problem.message.startswith("agent: program.exe is signed by CN=Somebody, O=Somebody, C=US, but ")


def test_a_damaged_catalogue_signs_for_nothing(tmp_path: Path) -> None:
    data = archive(program_exe=fixture("program.exe"), agent_cat=b"damaged")
    first, second = check(tmp_path, data).problems
    assert first.message.startswith("agent: program.exe is not signed")
    assert second.message.startswith("agent: agent.cat is rejected by artifacts.signatures.signers: altered: ")


def test_what_the_lock_says_of_a_signature(tmp_path: Path) -> None:
    found = check(tmp_path, fixture("stamped.exe"), judge=fixture_trust()).signed[WHOLE_FILE]
    root = LockedIssuer(subject="CN=Example Root, O=Example", thumbprint=found.root.thumbprint)
    assert (found.signer, found.root, found.timestamp) == (
        "CN=Example Inc, O=Example Inc, C=US",
        root,
        "2026-03-01T00:00:00Z",
    )
    assert found.timestamp_root is not None
    assert found.timestamp_root.subject == "CN=Example Clock Root, O=Example"
    assert found.timestamp_root.thumbprint == read_certificate(read_pem(fixture("clock-root.pem"))[0]).sha256.lower()
    assert [one.subject for one in found.issuers] == ["CN=Example Code CA, O=Example"]
    assert found.thumbprint != found.sha1
    assert check(tmp_path, fixture("nested.exe"), judge=fixture_trust()).signed[WHOLE_FILE].by == "nested"
    plain = check(tmp_path, sign_pe(fixture("program.exe"), pki().signer)).signed[WHOLE_FILE]
    assert (plain.timestamp, plain.timestamp_root) == (None, None)


def test_the_signature_of_a_package_covers_its_files(tmp_path: Path) -> None:
    assert check(tmp_path, fixture("signed.msi"), judge=fixture_trust()).problems == ()


def test_an_unsigned_package_in_an_archive(tmp_path: Path) -> None:
    (problem,) = check(tmp_path, archive(setup_bin=fixture("package.msi"))).problems
    assert problem.message.startswith("agent: setup.bin is not signed, but ")


def test_the_bytes_tell_a_program_and_the_name_tells_a_script(tmp_path: Path) -> None:
    data = archive(tool=fixture("program.exe"), run_ps1=SCRIPT, run_txt=SCRIPT, text_exe=TEXT)
    found = check(tmp_path, data)
    assert [problem.message.split(" ")[1] for problem in found.problems] == ["tool", "run.ps1", "text.exe"]
    assert found.not_programs == ["run.txt"]


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imagegen.inspect.archive.LIMIT_BYTES", 10_000)
    data = archive(program_exe=b"MZ" + bytes(20_000))
    with pytest.raises(VerificationError, match="unpacks to more than"):
        check(tmp_path, data)
