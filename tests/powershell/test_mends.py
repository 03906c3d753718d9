"""What faults that were found have taught the scripts: each mend of docs/faults.md, and that its undoing is seen.

The model machine shows what a mend is for; these show that the scripts, which no test here runs, have it too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.powershell import mend_words as w
from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import has_no_parameters, in_order, only_at_last, only_where, tried
from tests.unit.test_docs_faults import rows

if TYPE_CHECKING:
    pass

GUEST = "packer/guest"
ENTRY, ENGINE, COMMON = f"{GUEST}/start.ps1", f"{GUEST}/engine.psm1", f"{GUEST}/common.psm1"
DOWNLOAD, SEAL = f"{GUEST}/download.psm1", f"{GUEST}/seal.psm1"
ARCHIVE, DEFENDER = f"{GUEST}/kinds/archive.ps1", f"{GUEST}/kinds/defender.ps1"
FIRST_BOOT = "ansible-win/roles/cloudbase-init/files/first-boot.ps1"


MENDS = (
    Mend(
        "P1-a-spoilt-state-is-discarded",
        ENGINE,
        (
            tried(w.READ_TEXT, within="Read-State", catch="continue"),
            tried(w.READ_TEXT, within="Read-State", catch=w.DISCARD),
            tried(w.READ_STATE, within="Invoke-Phase", catch="-Phase $Name -Status 'failed'"),
        ),
        (
            (
                f"try {{ $state = {w.READ_TEXT} }}\n        catch {{",
                f"$state = {w.READ_TEXT}\n        if ($null -eq $state) {{",
            ),
            (
                'it is not a complete state of version 1"\n            continue',
                'it is not a complete state of version 1"',
            ),
            (w.DISCARD, '$null = "discarded ${path}: it is not'),
            (f"    try {{\n        {w.READ_STATE}\n", f"    {w.READ_STATE}\n    try {{\n"),
        ),
    ),
    Mend(
        "P2-the-entry-reads-its-own-words",
        ENTRY,
        (
            has_no_parameters,
            in_order(w.LAST_COLON, "Read-Argument -Word $args"),
            only_where("$known.Count -ne 1", f'{w.ARGUMENT_ERROR}"unknown argument: $name")'),
            only_where("$given.ContainsKey($name)", f'{w.ARGUMENT_ERROR}"$name is given twice")'),
            only_where(w.NO_VALUE, f'{w.ARGUMENT_ERROR}"$name has no value")'),
            in_order(
                f"$known = @(@({w.NAMES}) -eq $name)",
                "if ($known.Count -ne 1)",
                "$name = $known[0]",
                "if ($given.ContainsKey($name))",
                "if ($name -eq '-Check')",
                f"if ({w.NO_VALUE})",
                "$given[$name] = $Word[$index]",
            ),
        ),
        (
            ("# It has no parameters:", "[CmdletBinding()]\nparam([string]$Phase)\n# It has no parameters:"),
            (f"    {w.LAST_COLON}", "    if ($args[-1] -match '\\A-\\w+:\\z')"),
            (f"@({w.NAMES}) -eq $name", f"@({w.NAMES}, '-B') -eq $name"),
            ("        $name = $known[0]\n", ""),
            ("$known.Count -ne 1", "$known.Count -gt 1"),
            (f'        if ($given.ContainsKey($name)) {{ {w.ARGUMENT_ERROR}"$name is given twice") }}\n', ""),
            (w.NO_VALUE, "$index -ge $Word.Count"),
        ),
    ),
    Mend(
        "P3-a-program-in-use-is-named-with-its-service",
        COMMON,
        (
            tried("Move-IntoPlace -From $new", within="Copy-IntoPlace", catch=w.IN_USE),
            in_order("$users = @(Get-ServiceUsing -Path $To) -join ', '", w.IN_USE, within="Copy-IntoPlace"),
        ),
        (
            (f"            {w.IN_USE}\n", "            throw\n"),
            ("$users = @(Get-ServiceUsing -Path $To) -join ', '", "$users = ''"),
        ),
    ),
    Mend(
        "P3-only-what-differs-is-put-in-place",
        ARCHIVE,
        (in_order("$digest = Get-Digest -Path $file", w.SAME_BYTES, "Copy-IntoPlace -From $file -To $target"),),
        (
            (f"                {w.SAME_BYTES}\n", ""),
            ("(Get-Digest -Path $target) -ceq $digest", "(Get-Digest -Path $target) -cne $digest"),
        ),
    ),
    Mend(
        "P3-what-was-unpacked-goes-however-it-ends",
        COMMON,
        (
            tried(
                "$null = Invoke-Native -FilePath (Get-SystemTool -Name 'tar.exe')", at_last="Clear-Tree -Path $staging"
            ),
            tried("& $Use $staging", at_last="Clear-Tree -Path $staging"),
        ),
        (("finally { Clear-Tree -Path $staging }", "finally { $null = $staging }"),),
    ),
    Mend(
        "P4-a-read-only-file-is-replaced",
        COMMON,
        (
            in_order(w.TARGET_WRITABLE, "Move-IntoPlace -From $new -To $To", within="Copy-IntoPlace"),
            in_order(w.STALE_WRITABLE, w.COPY, w.COPY_WRITABLE, "$found = Get-Digest -Path $new"),
        ),
        ((f"            {w.TARGET_WRITABLE}\n", ""), (f"        {w.STALE_WRITABLE}\n", ""), (w.COPY_WRITABLE, "")),
    ),
    Mend(
        "P4-nothing-half-done-is-left",
        COMMON,
        (
            tried(w.COPY, within="Copy-IntoPlace", at_last="[System.IO.File]::Delete($new)"),
            tried("Move-IntoPlace", within="Copy-IntoPlace", at_last="[System.IO.File]::Delete($new)"),
        ),
        (
            ("if ([System.IO.File]::Exists($new)) { [System.IO.File]::Delete($new) }", "$null = $new"),
            ("    finally {\n        if ([System.IO.File]::Exists($new))", "    catch {\n        if ($null -ne $new)"),
        ),
    ),
    Mend(
        "P5-what-was-begun-is-saved-before-it-is-set",
        ENGINE,
        (in_order(w.SAVE_SETTING, "$answer = & $kind.Set $Entry.Fields $context", within="Invoke-Set"),),
        (
            (f"    {w.SAVE_SETTING}\n", ""),
            (
                f"    {w.SAVE_SETTING}\n    $answer = & $kind.Set $Entry.Fields $context\n",
                f"    $answer = & $kind.Set $Entry.Fields $context\n    {w.SAVE_SETTING}\n",
            ),
        ),
    ),
    Mend(
        "P5-what-was-begun-counts-as-changed",
        ENGINE,
        (
            only_where(w.KEEP, w.WRITE_OUTCOME, within="Save-Outcome"),
            in_order(w.SAVED, w.WRITE_OUTCOME, within="Save-Outcome"),
            only_where(w.BEGUN, w.BEGUN_REASON, within="Invoke-Entry"),
            in_order(w.SAVED, f"if ({w.BEGUN})", "$status = if (", within="Invoke-Entry"),
            in_order(w.OWN_BEGUN, "if ($begun -and $Own.restart) { return }", within="Assert-Order"),
        ),
        (
            ("@('changed', 'setting') -cnotcontains $saved.status", "$saved.status -cne 'changed'"),
            (f"    {w.SAVED}\n    if ($Status", "    $saved = $null\n    if ($Status"),
            (w.BEGUN_REASON, "$reasons = @()"),
            (f"    if ({w.BEGUN}) {{ {w.BEGUN_REASON} }}\n", ""),
            ("-Status 'changed', 'setting').Count", "-Status 'changed').Count"),
        ),
    ),
    Mend(
        "P6-what-is-still-there-fails-the-seal",
        SEAL,
        (
            only_where("$left.Count -gt 0", 'throw "could not be deleted: ', within="Invoke-Seal"),
            in_order("foreach ($path in @(Get-Leftover))", "$left = @(Get-Leftover)", "if ($left.Count -gt 0)"),
        ),
        (
            ("    if ($left.Count -gt 0) { throw \"could not be deleted: $($left -join ', ')\" }\n", ""),
            ("$left = @(Get-Leftover)", "$left = @()"),
        ),
    ),
    Mend(
        "P7-without-defender-nothing-needs-to-be-excluded",
        DEFENDER,
        (
            tried("Get-MpPreference", catch="$why = $_.Exception.Message"),
            only_where(w.DEFENDER_OFF, w.NO_DEFENDER),
            only_where(w.WAITED, w.UNAVAILABLE),
        ),
        (
            ("foreach ($known in $excluded) {", "foreach ($known in @((Get-MpPreference).ExclusionProcess)) {"),
            (f"if ({w.DEFENDER_OFF}) {{ {w.NO_DEFENDER} }}", w.NO_DEFENDER),
            (f"if ({w.WAITED}) {{ {w.UNAVAILABLE} }}", w.UNAVAILABLE),
        ),
    ),
    Mend(
        "P8-a-restart-that-none-follows-names-the-resource",
        ENGINE,
        (
            only_where(w.NO_RESTART, w.NEEDS_RESTART, within="Invoke-Entry"),
            in_order("-Entry $Entry -Status $status -Milliseconds", f"if ({w.NO_RESTART})", within="Invoke-Entry"),
            in_order(w.MAY_RESTART, w.READ_STATE, within="Invoke-Phase"),
        ),
        (
            (w.NEEDS_RESTART, w.NEEDS_RESTART.replace("throw (", "$null = (")),
            (f"if ({w.NO_RESTART})", f"if ($Quiet -and {w.NO_RESTART})"),
            (f"    {w.MAY_RESTART}\n", ""),
        ),
    ),
    Mend(
        "R1-windows-chooses-the-version-of-tls",
        DOWNLOAD,
        (
            only_where(w.OLDER_TLS, w.ADD_TLS),
            in_order("$script:Protocol = [System.Net.ServicePointManager]::SecurityProtocol", f"if ({w.OLDER_TLS})"),
        ),
        (
            (f"if ({w.OLDER_TLS})", "if ($true)"),
            ("$script:Protocol = [System.Net.ServicePointManager]::SecurityProtocol", "$script:Protocol = 192"),
        ),
    ),
    Mend(
        "R2-what-stays-after-first-boot-is-told",
        FIRST_BOOT,
        (
            tried(w.TELL_REASONS, catch=w.TELL_ERROR),
            in_order("\n        $code = 1", w.TELL_ERROR),
            in_order("$code = 0", "foreach ($part in", "exit $code"),
        ),
        (
            ("        $code = 1\n", ""),
            ("exit $code", "exit 0"),
            (w.TELL_REASONS, "$null = @(& $part)"),
            (w.TELL_ERROR, "throw"),
        ),
    ),
    Mend(
        "R3-what-a-check-unpacks-goes-however-it-ends",
        ENTRY,
        (
            tried(w.NEW_FOLDER, at_last=w.REMOVE_OWN),
            tried(w.RUN_ENGINE, at_last=w.REMOVE_OWN),
            only_at_last(w.REMOVE_OWN),
            only_where("$null -ne $lock", w.REMOVE_OWN),
            tried("Remove-Path -Path $root }", catch="$code = 1"),
            in_order(w.REMOVE_OWN, "$lock.Dispose()"),
            only_at_last("$lock.Dispose()"),
        ),
        (
            (f"        {w.REMOVE_OWN}\n", "        try { $null = $root }\n"),
            ("}\nfinally {\n    # Ctrl", "}\nif ($true) {\n    # Ctrl"),
            ("if ($null -ne $lock) {", "if ($null -eq $lock) {"),
            ("        catch {\n            $code = 1\n", "        catch {\n"),
            ("        $lock.Dispose()\n", ""),
        ),
    ),
    Mend(
        "R3-a-check-is-for-system-and-administrators-alone",
        ENTRY,
        (
            in_order("Protect-Folder -Path $root", "Expand-Bundle -Path", w.RUN_ENGINE),
            in_order(w.GRANT, "if ($LASTEXITCODE -ne 0) { throw", within="Protect-Folder"),
            only_where("$check", w.CHECK_FOLDER),
            in_order(w.NEW_FOLDER, "Protect-Folder -Path $root"),
        ),
        (
            (w.GRANT, w.GRANT.replace("'/inheritance:r' ", "")),
            ("    if ($LASTEXITCODE -ne 0) { throw", "    if ($LASTEXITCODE -lt 0) { throw"),
            ("    Protect-Folder -Path $root\n", ""),
            ("    Protect-Folder -Path $root\n", "    if ($null -eq $lock) { Protect-Folder -Path $root }\n"),
            ("$env:SystemRoot, 'imagegen-check'", "$env:SystemRoot, 'Temp', 'imagegen-check'"),
            (f"    {w.NEW_FOLDER}\n", ""),
        ),
    ),
    Mend(
        "R3-one-check-runs-at-a-time",
        ENTRY,
        (
            in_order(w.CHECK_FOLDER, w.HOLD, "\n        Remove-Path -Path $root"),
            in_order("[System.IO.FileShare]::None\n", w.HOLD),
            in_order("1, ([System.IO.FileOptions]::DeleteOnClose)"),
        ),
        (
            ("[System.IO.FileShare]::None\n", "[System.IO.FileShare]::ReadWrite\n"),
            (", ([System.IO.FileOptions]::DeleteOnClose)", ""),
            ("        Remove-Path -Path $root\n    }\n", "    }\n"),
        ),
    ),
    Mend(
        "R3-a-check-writes-no-log",
        ENGINE,
        (
            in_order("$session.Log = $null", "return (Invoke-Inspection -Session $session", within="Invoke-Engine"),
            in_order(w.NO_LOG, "[System.IO.File]::AppendAllText($Session.Log", within="Write-Line"),
        ),
        (("    $session.Log = $null\n", ""), (f"    {w.NO_LOG}\n", "")),
    ),
    Mend(
        "R4-downloads-go-through-the-plans-proxy",
        DOWNLOAD,
        (
            only_where(
                "$null -ne $Proxy", "$through = New-Object -TypeName System.Net.WebProxy -ArgumentList $Proxy.url"
            ),
            only_where("$null -ne $Proxy", w.BYPASS),
            in_order(w.USE_PROXY, "HttpClient -ArgumentList $handler", within="Open-Attempt"),
            in_order("$through = $null", "Proxy = $through; Part ="),
        ),
        (
            (f"        {w.BYPASS}\n", ""),
            ("$through = New-Object", "$null = New-Object"),
            (f"    {w.USE_PROXY}\n", ""),
            ("Proxy = $through; Part =", "Proxy = $null; Part ="),
        ),
    ),
)


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.id)
def test_script_has_the_mend(mend: Mend) -> None:
    faults = find_faults(mend)

    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.id)
def test_undoing_the_mend_is_seen(mend: Mend) -> None:
    assert find_unseen(mend) == []


def test_every_mend_is_named_in_its_row() -> None:
    named = rows()
    test = "tests/powershell/test_mends.py::test_script_has_the_mend"

    assert [mend.id for mend in MENDS if f"{test}[{mend.id}]" not in named.get(mend.row, [])] == []
