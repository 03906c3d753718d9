"""A script of the operator's that the build runs: the engine checks its signature before it starts it."""

from __future__ import annotations

from typing import Any

import pytest

from imagegen.rehearsal.machine.certificates import ROOT, Certificate
from tests.authenticode.pki import NOW, make_signer, pki
from tests.authenticode.signing import sign_script
from tests.rehearsal.machine.conftest import Bench, sha

TEXT = b"Write-Output 1\n"
OTHER = make_signer(pki().ca, "O=Other Inc, CN=Other Inc")
MARK = r"C:\ProgramData\imagegen\scripts\harden.ps1.json"

CASES = {
    "signed as planned": (sign_script(TEXT, pki().signer), ""),
    "not signed": (TEXT, "files/step/harden.ps1 is not signed, and the plan has a signature of CN=Example Inc"),
    "changed": (
        sign_script(TEXT, pki().signer).replace(b"Output 1", b"Output 2"),
        "files/step/harden.ps1 was changed after CN=Example Inc, O=Example Inc, C=US signed it",
    ),
    "another signer": (
        sign_script(TEXT, OTHER),
        "files/step/harden.ps1 is signed by CN=Other Inc, O=Other Inc, not with the certificate of CN=Example Inc",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_script_runs_only_with_the_signature_of_the_plan(bench: Bench, case: str) -> None:
    data, says = CASES[case]
    root, signer = pki().root.read, pki().signer.read
    bench.machine.date = NOW
    bench.machine.certificates.add(Certificate(root.sha1, root.der), ROOT)
    bench.signatures[sha(data)] = {
        **{"signer": str(signer.subject), "thumbprint": signer.sha256.lower(), "root": str(root.subject)},
        **{"root_thumbprint": root.sha256.lower(), "hidden": None},
        **{"timestamp_root": None, "timestamp_root_thumbprint": None},
    }
    source = bench.text("harden.ps1", data)
    fields: dict[str, Any] = {"name": "harden.ps1", "source": source, "sha256": sha(data), "arguments": []}
    bench.bundle({"phase-1": [("script", {**fields, "good_exit_codes": [0], "timeout_s": 60})]})
    outcome = bench.run("phase-1")
    assert outcome.exit_code == (4 if says else 0), outcome.output
    assert says in outcome.output
    assert bench.machine.files.exists(MARK) == (not says)
    if not says:
        assert bench.kept("report.json")["signatures"] == {sha(data): "machine"}
