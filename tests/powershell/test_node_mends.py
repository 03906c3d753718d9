"""What real programs demand of the scripts that run on a node, or seal it (docs/reality.md)."""

from __future__ import annotations

import pytest

from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import in_order, only_where, tried
from tests.unit.test_docs_faults import REALITY, rows

ROTATE = "ansible-win/roles/kubernetes/files/rotate-logs.ps1"
SEAL = "packer/guest/seal.psm1"
SHARED = "-ArgumentList $Path, 'Open', 'ReadWrite', 'ReadWrite'"
COPY = "$Log.CopyTo($copy)"
WRITTEN = "$copy.Flush()"
EMPTY = "$Log.SetLength(0)"
EMPTIED = "$emptied = $true"
DELETE_COPY = '[System.IO.File]::Delete("$Path.1")'
LIMIT = "Limit-Log -Path $path -Size $size -Keep $keep"
SAY = '[System.Console]::Error.WriteLine("rotate-logs: ${line}: $($_.Exception.Message)")'
END_ONLY = "$null = $log.Seek([System.Math]::Max([long]0, $log.Length - 2 * $Size), 'Begin')"
SHIFT = '[System.IO.File]::Move("$Path.$($number - 1)", "$Path.$number")'
DELETE_OLDEST = '[System.IO.File]::Delete("$Path.$free")'
COMPILE = "Invoke-Native -FilePath $ngen -ArgumentList 'executeQueuedItems'"
COMPILE_FAILED = '$line = "$ngen executeQueuedItems failed: $($_.Exception.Message)"'

MENDS = (
    Mend(
        "N2-a-log-is-emptied-in-place-when-its-copy-is-written",
        ROTATE,
        (
            in_order(
                SHARED,
                "if ($log.Length -le $Size) { return }",
                "Move-Copy -Path $Path -Keep $Keep",
                END_ONLY,
                "Clear-Log -Log $log",
            ),
            in_order(COPY, WRITTEN, EMPTY, EMPTIED, within="Clear-Log"),
            only_where("-not $emptied", DELETE_COPY, within="Clear-Log"),
            tried("$copy.Dispose()", within="Clear-Log", at_last=DELETE_COPY),
            in_order(DELETE_OLDEST, SHIFT, within="Move-Copy"),
            tried(LIMIT, catch=SAY),
            in_order("$code = 1", SAY),
        ),
        (
            ("'Open', 'ReadWrite', 'ReadWrite'", "'Open', 'ReadWrite', 'None'"),
            ("        if ($log.Length -le $Size) { return }\n", ""),
            (f"        {END_ONLY}\n", ""),
            (f"        {WRITTEN}\n        {EMPTY}\n", f"        {EMPTY}\n        {WRITTEN}\n"),
            (f"        {COPY}\n", ""),
            ("if (-not $emptied) {", "if ($emptied) {"),
            (
                f"        try {{ $copy.Dispose() }}\n        finally {{ if (-not $emptied) {{ {DELETE_COPY} }} }}\n",
                f"        $copy.Dispose()\n        if (-not $emptied) {{ {DELETE_COPY} }}\n",
            ),
            (f"    {DELETE_OLDEST}\n", ""),
            (f"            {SAY}\n", ""),
            ("            $code = 1\n", ""),
        ),
    ),
    Mend(
        "N5-a-compiler-that-fails-does-not-fail-the-seal",
        SEAL,
        (
            tried(COMPILE, within="Optimize-Assembly", catch=COMPILE_FAILED),
            in_order("$left = [int]", "[System.Console]::Out.WriteLine($line)", within="Optimize-Assembly"),
            in_order("Optimize-Assembly -TimeoutSeconds 900", "& $Generalise", within="Invoke-Seal"),
        ),
        (
            (f"catch {{ {COMPILE_FAILED} }}", "catch { throw }"),
            ("        [System.Console]::Out.WriteLine($line)\n", ""),
            ("        Optimize-Assembly -TimeoutSeconds 900\n", ""),
        ),
    ),
)


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.id)
def test_script_meets_the_demand(mend: Mend) -> None:
    faults = find_faults(mend)

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.id)
def test_a_script_that_does_not_is_seen(mend: Mend) -> None:
    assert find_unseen(mend) == []


def test_every_demand_is_named_in_its_row() -> None:
    named = rows(REALITY)
    test = "tests/powershell/test_node_mends.py::test_script_meets_the_demand"

    assert [mend.id for mend in MENDS if f"{test}[{mend.id}]" not in named[mend.row]] == []
