"""The rehearsal's own signatures are valid, and only for the file that was signed, by the signer that was asked for."""

from __future__ import annotations

import datetime
import io
from typing import TYPE_CHECKING

import pytest

from imagegen.authenticode.model import Verdict
from imagegen.authenticode.signer import parse_signer
from imagegen.authenticode.trust import load_trust
from imagegen.authenticode.verify import verify
from imagegen.rehearsal.signing.authority import SigningAuthority
from imagegen.rehearsal.signing.compound_file import NotCompoundError, make_compound_file, read_compound_file
from imagegen.rehearsal.signing.program import make_program
from imagegen.rehearsal.signing.sign import sign
from imagegen.rehearsal.signing.stand_in_signer import StandInSigner, find_names
from imagegen.trust.policy import SignatureRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagegen.authenticode.model import Verification
    from imagegen.rehearsal.signing.authority import CodeSigner

STREAMS = {"Payload": b"x" * 9000, "Short": b"abc", "Empty": b"", "Exact": b"y" * 4096, "\x05Other": b"z" * 64}
FILES = {
    "program.exe": make_program(b"a stand-in\n"),
    "library.dll": make_program(b"a stand-in\n" * 500, is_library=True),
    "package.msi": make_compound_file(STREAMS),
    "script.ps1": b"Write-Output 1\r\n",
    "module.psm1": b"# nothing\n",
}


class Everything:
    def select(self, members: Mapping[str, str] | None) -> dict[str, frozenset[str]]:
        raise AssertionError(members)


@pytest.fixture(scope="module")
def authority() -> SigningAuthority:
    return SigningAuthority((("CN", "Example Root"),))


@pytest.fixture(scope="module")
def signer(authority: SigningAuthority) -> CodeSigner:
    return authority.certify((("CN", "Example"), ("O", "Example, Inc."), ("2.5.4.15", "Private Organization")))


def judge(data: bytes, name: str, roots: bytes) -> Verification:
    now = datetime.datetime.now(datetime.UTC)
    return verify(io.BytesIO(data), name, load_trust(now=now, roots=[roots], public_roots=False))


@pytest.mark.parametrize("name", FILES)
def test_each_form_is_signed(name: str, authority: SigningAuthority, signer: CodeSigner) -> None:
    data = FILES[name]
    assert judge(data, name, authority.pem).verdict is Verdict.UNSIGNED
    signed = sign(name, data, signer)
    found = judge(signed, name, authority.pem)
    assert found.verdict is Verdict.VALID, found.reason
    assert found.signature is not None
    assert [str(one.subject) for one in found.signature.chain] == [
        'CN=Example, O="Example, Inc.", 2.5.4.15=Private Organization',
        "CN=Example Root",
    ]
    at = len(data) // 2
    changed = signed[:at] + bytes([signed[at] ^ 1]) + signed[at + 1 :]
    assert judge(changed, name, authority.pem).verdict is Verdict.ALTERED
    other = SigningAuthority((("CN", "Example Root"),))
    assert judge(signed, name, other.pem).verdict is Verdict.UNTRUSTED


def test_what_is_no_program_stays_as_it_is(signer: CodeSigner) -> None:
    assert sign("a.conf", b"text", signer) == b"text"


def test_compound_files_have_their_streams() -> None:
    assert read_compound_file(make_compound_file(STREAMS)) == STREAMS
    assert make_compound_file(dict(reversed(STREAMS.items()))) == make_compound_file(STREAMS)
    assert read_compound_file(make_compound_file({})) == {}


@pytest.mark.parametrize(
    "data", [b"", b"x" * 600, make_compound_file(STREAMS)[:700], make_compound_file(STREAMS)[:400]]
)
def test_what_is_no_compound_file_is_refused(data: bytes) -> None:
    with pytest.raises(NotCompoundError):
        read_compound_file(data)


def request(*signers: object) -> SignatureRequest:
    return SignatureRequest("agent", Everything(), tuple(map(parse_signer, signers)), "a.key", "an.override")


@pytest.mark.parametrize(
    ("signers", "names"),
    [
        ((), ((("CN", "Rehearsal"),), (("CN", "Rehearsal Root"),))),
        (("CN=A, O=B",), ((("CN", "A"), ("O", "B")), (("CN", "Rehearsal Root"),))),
        (({"subject": "CN=A", "issuer": "CN=Ca"},), ((("CN", "A"),), (("CN", "Ca"),))),
        (("issuer: CN=Ca",), ((("CN", "Rehearsal"),), (("CN", "Ca"),))),
        (("ab" * 20, "microsoft", "CN=A"), ((("CN", "A"),), (("CN", "Rehearsal Root"),))),
        (("ab" * 20,), None),
        (("microsoft",), None),
        (({"subject": "CN=A", "thumbprint": "ab" * 32},), None),
    ],
)
def test_the_names_follow_from_the_config(signers: tuple[object, ...], names: object) -> None:
    assert find_names(request(*signers)) == names


def test_a_signer_of_the_config_signs_its_artifact_and_no_other() -> None:
    made = StandInSigner({"agent": request("CN=A"), "other": request("CN=B"), "pinned": request("ab" * 20)})
    program = FILES["program.exe"]
    subjects = {}
    for name in ("agent", "other"):
        found = judge(made.sign(name, "program.exe", program), "program.exe", made.roots)
        assert found.signature is not None
        assert found.signature.signer is not None
        subjects[name] = str(found.signature.signer.subject)
    assert subjects == {"agent": "CN=A", "other": "CN=B"}
    assert made.sign("pinned", "program.exe", program) == made.sign("unknown", "program.exe", program) == program
    assert made.roots.count(b"BEGIN CERTIFICATE") == made.revocation_lists.count(b"BEGIN X509 CRL") == 1
