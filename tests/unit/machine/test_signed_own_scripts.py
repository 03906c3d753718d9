"""A script of the operator's that the build runs: the engine checks its signature before it starts it."""

from __future__ import annotations

from typing import Any

import pytest

from imagegen.rehearsal.machine.certificates import ROOT, Certificate
from tests.authenticode.pki import NOW, make_signer, pki
from tests.authenticode.signing import sign_script
from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import in_order
from tests.unit.machine.conftest import Bench, sha

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


CHECK = "Assert-Signature -Path $file -Name $Resource.source -Digest $Resource.sha256 -Context $Context"
RUN = "Invoke-Native -FilePath (Get-SystemTool -Name 'WindowsPowerShell\\v1.0\\powershell.exe')"
MEND = Mend("signed-scripts", "packer/guest/kinds/script.ps1", (in_order(CHECK, RUN),), ((f"        {CHECK}\n", ""),))


def test_the_engine_itself_checks_before_it_runs() -> None:
    """The model shows what the check is for; this shows that the script has it, and that its loss is seen."""
    assert (find_faults(MEND), find_unseen(MEND)) == ([], [])
