"""What real programs demand of the scripts that run on a node, or seal it (docs/reality.md)."""

from __future__ import annotations

import pytest

from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.mend_words import IS_LINK
from tests.powershell.standing import handed_to, in_order, only_where, tried
from tests.unit.test_docs_faults import REALITY, rows

START_KUBELET = "ansible-win/roles/kubernetes/files/start-kubelet.ps1"
ROTATE = "ansible-win/roles/kubernetes/files/rotate-logs.ps1"
SEAL = "packer/guest/seal.psm1"
COMMON = "packer/guest/common.psm1"
TASK = "packer/guest/kinds/task.ps1"
VOLUME = "packer/guest/kinds/volume.ps1"
DEFENDER = "packer/guest/kinds/defender.ps1"
ENGINE = "packer/guest/engine.psm1"
POD_NETWORK = "ansible-win/roles/cni/files/set-pod-network.ps1"
AZURE_SEAL = "packer/azure/generalise.ps1"
SHARED = "-ArgumentList $Path, 'Open', 'ReadWrite', 'ReadWrite'"
COPY = "$Log.CopyTo($copy)"
ON_DISK = "$copy.Flush($true)"
COPY_FIRST = "Copy-Rest -Log $log -Path $copy -Mode 'Create'"
SHIFT_ALL = "Move-Copy -Path $Path -Keep $Keep"
COPY_THEN = "Copy-Rest -Log $log -Path $copy -Mode 'Append'"
UP_TO_DATE = "for ($round = 0; $round -lt 3 -and $log.Position -lt $log.Length; $round++) {"
WAS_EMPTIED = "if ($log.Position -gt $log.Length) {"
EMPTIED = "throw 'another program emptied the log meanwhile'"
EMPTY = "$log.SetLength(0)"
DELETE_ONE = '[System.IO.File]::Delete("$Path.$number")'
FULL = "if ($script:DiskFull -contains $cause.HResult) {"
DELETE_COPY = "[System.IO.File]::Delete($copy)"
FREE = "$reason += ' ' + (Clear-Space -Log $log"
LIMIT = "Limit-Log -Path $path -Size $size -Keep $keep"
NO_PATH = "if ($line -notmatch '\\A[1-9][0-9]{0,17} [1-9][0-9]{0,8} \\S') { throw 'the line must have"
SAY = '$failures += "${line}: $($_.Exception.Message)"'
KEEP_FAILURE = "[System.IO.File]::WriteAllLines($failed, [string[]]$failures)"
FORGET = "[System.IO.File]::Delete($failed)"
END_ONLY = "$null = $log.Seek([System.Math]::Max([long]0, $log.Length - 2 * $Size), 'Begin')"
SHIFT = '[System.IO.File]::Move("$Path.$($number - 1)", "$Path.$number")'
DELETE_OLDEST = '[System.IO.File]::Delete("$Path.$free")'
NAME_COPY = '[System.IO.File]::Move("${Path}.new", "$Path.1")'
STAYS = '[System.Console]::Out.WriteLine("$What stays in the image, at least in part: $(Get-Cause -ErrorRecord $_)")'
FOLDER_MAY_STAY = "Clear-Optional -What $folder -Clear { Clear-Tree -Path $folder -TimeoutSeconds $left }"
FILE_MAY_STAY = "Clear-Optional -What $file -Clear { Clear-Tree -Path $file -TimeoutSeconds 0 }"
LIST_MAY_FAIL = 'Clear-Optional -What "$Name in $Parent" -Clear {'
FILES_MAY_FAIL = "Clear-Optional -What $Folder -Clear {"
EVENTS_MAY_STAY = 'Clear-Optional -What "event log $name" -Clear { $null = $session.ClearLog($name) }'
ALL_EVENTS_MAY_STAY = "Clear-Optional -What 'the content of event logs' -Clear {"
TIME_LEFT = "$left = [System.Math]::Max(1, $TimeoutSeconds - $clock.Elapsed.TotalSeconds)"
RUNNING = "$programs = @(Get-RunningProgram)"
LIST_TREE = "$entries = @(Get-TreeEntry -Path $Path)"
MAKE_NORMAL = "[System.IO.File]::SetAttributes($entry, [System.IO.FileAttributes]::Normal)"
DELETE_TREE = "[System.IO.Directory]::Delete($Path, $true)"
IN_FOLDER = "$program.IndexOf($Folder + '\\', [System.StringComparison]::OrdinalIgnoreCase) -ge 0"
REFUSE = 'throw "an extension is installed: '
RUN_OPTIONAL = "Invoke-Program -FilePath $FilePath -ArgumentList $ArgumentList -TimeoutSeconds"
COMPILE = "Invoke-Optional -FilePath $ngen -ArgumentList 'executeQueuedItems', "
OPTIONAL_FAILED = (
    "[System.Console]::Out.WriteLine(\"$FilePath $($ArgumentList -join ' ') failed: $($_.Exception.Message)\")"
)

NEVER_EXPIRE = "'accounts', '/maxpwage:unlimited'"
LIST_BUILDER = "Write-TextFile -Path 'C:\\Windows\\Setup\\Scripts\\accounts.txt' -Text \"500`r`n\""
RUN_SYSPREP = "Invoke-Program -FilePath (Get-SystemTool -Name 'Sysprep\\sysprep.exe')"
NOT_GENERALISED = "if (-not (Wait-Until -Seconds 600 -Every 2 -Test { (Get-ImageState) -eq $script:Generalised }))"
ANY_CODE = "-ArgumentLine $ArgumentLine -GoodExitCode @() -TimeoutSeconds"
AWAIT_PARTITION = "$found = @(Wait-Until -Seconds 60 -Every 2 -Test {"
STILL_PENDING = "if (Wait-Until -Seconds 120 -Every 2 -Test { -not (Test-RestartPending) }) { return }"
UNAVAILABLE = "if ($clock.Elapsed.TotalSeconds -gt $limit) { return [ordered]@{ unavailable = $why } }"
STARTING = "$limit = if (([System.Environment]::TickCount -band [int]::MaxValue) -gt 600000) { 30 } else { 300 }"

EXPORT = "$text = [string](Export-ScheduledTask -TaskName $Resource.name -TaskPath '\\' -ErrorAction Stop)"
NOT_MISSING = "$id -notlike 'HRESULT 0x80070002,*' -and $id -notlike 'CmdletizationQuery_NotFound*'"

ADAPTER_IS_BACK = "Enable-Forwarding -Address $NodeAddress"
# In no block: also for an endpoint that was there.
ATTACH_ENDPOINT = "\n    Enable-Forwarding -Address $address -Endpoint $endpoint.ID"
ATTACH = '$null = Invoke-Hns -Method POST -Path "/endpoints/$Endpoint/attach"'
KEEP_REFUSAL = "$refusal = $_.Exception.Message"
HAS_ADDRESS = (
    "if ($found.Count -gt 0) { Set-NetIPInterface -InterfaceIndex $found[0].InterfaceIndex -AddressFamily IPv4 "
    "-Forwarding Enabled -ErrorAction Stop; return }"
)
ATTACHED_TOO_LATE = 'throw "no adapter has the address $Address one minute after its network was created. $refusal"'
TRY_A_MINUTE = "Wait-Success -Seconds 60 -Try {"
READ_FLAGS = "foreach ($line in @(Get-Content -LiteralPath $Path -Encoding UTF8))"
AWAIT_FLAGS = (
    "if ($joining) { $null = Wait-Until -Seconds 20 -Every 1 -Test { [System.IO.File]::Exists($flags) -and "
    "[string](Get-Content -LiteralPath $flags -Raw -Encoding UTF8) -match '\"\\s*\\z' } }"
)

MENDS = (
    Mend(
        "B12-the-builders-password-does-not-expire",
        AZURE_SEAL,
        (in_order(NEVER_EXPIRE, RUN_SYSPREP), in_order(LIST_BUILDER, RUN_SYSPREP)),
        (("/maxpwage:unlimited", "/maxpwage:42"), (f"    {LIST_BUILDER}\n", "")),
    ),
    Mend(
        "N17-the-endpoint-of-a-bridge-is-attached-until-windows-has-its-address",
        POD_NETWORK,
        (
            in_order("if ($null -eq $network)", ADAPTER_IS_BACK, "if ($null -eq $endpoint)", ATTACH_ENDPOINT),
            in_order(HAS_ADDRESS, ATTACH, within="Enable-Forwarding"),
            handed_to(TRY_A_MINUTE, HAS_ADDRESS, within="Enable-Forwarding"),
            handed_to(TRY_A_MINUTE, ATTACHED_TOO_LATE, within="Enable-Forwarding"),
            tried(ATTACH, within="Enable-Forwarding", catch=KEEP_REFUSAL),
        ),
        (
            (f"    {ADAPTER_IS_BACK}\n", ""),
            (ATTACH_ENDPOINT, f"\n    if ($null -eq $endpoint) {{{ATTACH_ENDPOINT.lstrip()}}}"),
            (HAS_ADDRESS, "if ($found.Count -gt 0) { $null = $found }"),
            (ATTACHED_TOO_LATE, "$null = $refusal"),
            (TRY_A_MINUTE, "& {"),
            (f"        catch {{ {KEEP_REFUSAL} }}", "        catch { throw }"),
        ),
    ),
    Mend(
        "G3-no-exit-code-of-sysprep-fails-the-seal",
        SEAL,
        (
            in_order(ANY_CODE, "[System.Console]::Out.WriteLine(", within="Invoke-Program"),
            in_order("& $Generalise", NOT_GENERALISED, within="Invoke-Seal"),
        ),
        ((ANY_CODE, ANY_CODE.replace("@()", "@(0)")), (NOT_GENERALISED, "if ($false)")),
    ),
    Mend(
        "G5-defender-that-still-starts-is-waited-for",
        DEFENDER,
        (in_order(STARTING, UNAVAILABLE, "Start-Sleep -Seconds 2"),),
        (
            ("else { 300 }", "else { 0 }"),
            ("-gt 600000", "-gt 600"),
            (UNAVAILABLE, "return [ordered]@{ unavailable = $why }"),
        ),
    ),
    Mend(
        "G6-a-restart-that-windows-still-finishes-is-waited-for",
        ENGINE,
        (
            in_order(
                STILL_PENDING, 'throw (Get-Failure -ExitCode 6 -Message "Windows has a restart pending: the one after'
            ),
        ),
        ((STILL_PENDING, STILL_PENDING.replace("120", "0")),),
    ),
    Mend(
        "N2-a-log-is-emptied-in-place-when-its-copy-is-on-the-disk",
        ROTATE,
        (
            in_order(SHARED, "if ($log.Length -le $Size) { return }", END_ONLY, COPY_FIRST),
            in_order(
                COPY_FIRST, SHIFT_ALL, '$copy = "$Path.1"', f"{UP_TO_DATE} {COPY_THEN}", EMPTY, within="Limit-Log"
            ),
            in_order(COPY, ON_DISK, within="Copy-Rest"),
            tried(COPY, within="Copy-Rest", at_last="$copy.Dispose()"),
            tried(EMPTY, within="Limit-Log", catch=DELETE_COPY),
            in_order(DELETE_OLDEST, SHIFT, within="Move-Copy"),
            in_order(DELETE_OLDEST, NAME_COPY, within="Move-Copy"),
            tried(LIMIT, catch=SAY),
            in_order(NO_PATH, LIMIT),
        ),
        (
            ("'Open', 'ReadWrite', 'ReadWrite'", "'Open', 'ReadWrite', 'None'"),
            ("        if ($log.Length -le $Size) { return }\n", ""),
            (f"        {END_ONLY}\n", ""),
            (f"            {UP_TO_DATE}", f"            {EMPTY}\n            {UP_TO_DATE}"),
            (f"{{ {COPY_THEN} }}", "{ $null = $copy }"),
            (f"            {COPY_FIRST}\n", ""),
            (f"        {COPY}\n", ""),
            (ON_DISK, "$copy.Flush()"),
            ("    finally { $copy.Dispose() }", "    finally { $null = $copy }"),
            (f"            try {{ {DELETE_COPY} }}\n", "            try { $null = $copy }\n"),
            (f"    {DELETE_OLDEST}\n", ""),
            (f"    {NAME_COPY}\n", ""),
            (SAY, "$null = $_"),
            (NO_PATH, "if ($line -eq ' ') { throw 'the line must have"),
        ),
    ),
    Mend(
        "N2-a-full-disk-does-not-stop-the-rotation",
        ROTATE,
        (
            only_where("$script:DiskFull -contains $cause.HResult", FREE, within="Limit-Log"),
            in_order("$cause = $_.Exception", f"try {{ {DELETE_COPY}", FULL, "throw $reason", within="Limit-Log"),
            tried(DELETE_COPY, within="Limit-Log", catch="$reason += "),
            tried(DELETE_ONE, within="Clear-Space", catch="continue"),
            in_order("$script:DiskFull = @(-2147024857, -2147024784)", LIMIT),
            in_order("for ($number = $Keep; $number -ge 1; $number--) {", "$Log.SetLength(0)", within="Clear-Space"),
            in_order(
                'if (-not [System.IO.File]::Exists("$Path.$number")) { continue }',
                f"try {{ {DELETE_ONE} }}",
                'return "Its copy',
                within="Clear-Space",
            ),
        ),
        (
            (FULL, "if ($true) {"),
            ("            throw $reason\n", ""),
            (
                f"try {{ {DELETE_COPY} }}\n            catch {{ $reason",
                f"{DELETE_COPY}\n            if ($false) {{ $reason",
            ),
            ("catch { continue }", "catch { throw }"),
            ("@(-2147024857, -2147024784)", "@(112, 39)"),
            ("$number = $Keep; $number -ge 1; $number--", "$number = 1; $number -le $Keep; $number++"),
            ('        return "Its copy', '        "Its copy'),
            ("    $Log.SetLength(0)\n    return", "    return"),
        ),
    ),
    Mend(
        "N2-a-log-that-another-run-emptied-is-not-emptied-again",
        ROTATE,
        (
            in_order(UP_TO_DATE, f"{WAS_EMPTIED}\n", EMPTY, within="Limit-Log"),
            only_where("$log.Position -gt $log.Length", EMPTIED, within="Limit-Log"),
            in_order('\n                $copy = "${Path}.new"', EMPTIED, within="Limit-Log"),
        ),
        (
            (f"                {EMPTIED}\n", ""),
            (
                f"            {WAS_EMPTIED}",
                f"            if ($log.Length -eq 0) {{ {EMPTY} }}\n            {WAS_EMPTIED}",
            ),
            ('                $copy = "${Path}.new"\n', ""),
        ),
    ),
    Mend(
        "N4-the-arguments-are-read-while-kubeadm-has-them-open",
        START_KUBELET,
        (in_order("$joining = ", AWAIT_FLAGS, "$arguments = @("),),
        ((AWAIT_FLAGS, AWAIT_FLAGS.replace(" -match '\"\\s*\\z'", " -ne ''")),),
    ),
    Mend(
        "N4-no-arguments-are-read-with-a-lock",
        COMMON,
        (in_order(READ_FLAGS, "foreach ($word in [regex]::Matches($text,", within="Read-KubeadmArgument"),),
        ((READ_FLAGS, "foreach ($line in [System.IO.File]::ReadAllLines($Path))"),),
    ),
    Mend(
        "N2-the-last-failure-of-the-rotation-is-kept",
        ROTATE,
        (
            tried(LIMIT, catch=SAY),
            only_where("$failures.Count -eq 0", FORGET),
            in_order("$failures = @()", "$failed = $List + '.failed'", KEEP_FAILURE),
            tried(KEEP_FAILURE, catch='$failures += "${failed}: $($_.Exception.Message)"'),
            in_order("$failed = $List", "exit [int]($failures.Count -gt 0)"),
        ),
        (
            (SAY, "$null = $_"),
            (f"if ($failures.Count -eq 0) {{ {FORGET} }}", f"if ($failures.Count -gt 0) {{ {FORGET} }}"),
            (KEEP_FAILURE, "$null = $failures"),
            ('catch { $failures += "${failed}: $($_.Exception.Message)" }', "catch { throw }"),
            ("exit [int]($failures.Count -gt 0)", "exit 0"),
        ),
    ),
    Mend(
        "N15-a-storage-service-that-knows-no-partition-yet-is-waited-for",
        VOLUME,
        (handed_to(AWAIT_PARTITION, "\n                Get-CimInstance"),),
        ((AWAIT_PARTITION, "$found = @(& {"),),
    ),
    Mend(
        "N2-only-a-task-that-is-not-found-is-none",
        TASK,
        (
            in_order(f"if ({NOT_MISSING}) {{ throw }}", "\n            return $null"),
            tried(EXPORT, catch="return $null"),
        ),
        (
            ("-notlike 'CmdletizationQuery_NotFound*'", "-notlike '*'"),
            ("-notlike 'HRESULT 0x80070002,*'", "-notlike 'HRESULT*'"),
            (f"        try {{ {EXPORT} }}\n        catch {{\n", f"        {EXPORT}\n        if ($text -eq '') {{\n"),
        ),
    ),
    Mend(
        "N5-a-compiler-that-fails-does-not-fail-the-seal",
        SEAL,
        (
            tried(RUN_OPTIONAL, within="Invoke-Optional", catch=OPTIONAL_FAILED),
            in_order(COMPILE, "& $Generalise", within="Invoke-Seal"),
        ),
        (
            (f"catch {{ {OPTIONAL_FAILED} }}", "catch { throw }"),
            (COMPILE, COMPILE.replace("executeQueuedItems", "display")),
        ),
    ),
    Mend(
        "G4-what-cannot-be-deleted-fails-no-seal",
        SEAL,
        (
            tried("& $Clear", within="Clear-Optional", catch=STAYS),
            in_order("$clock = ", TIME_LEFT, f"else {{ {FOLDER_MAY_STAY} }}", within="Clear-AgentFolder"),
            in_order(f"\n    {LIST_MAY_FAIL}", within="Clear-AgentFolder"),
            in_order(f"\n    {FILES_MAY_FAIL}", within="Clear-File"),
            in_order(FILE_MAY_STAY, within="Clear-File"),
            in_order(f"\n    {ALL_EVENTS_MAY_STAY}", within="Clear-EventRecord"),
            in_order(EVENTS_MAY_STAY, within="Clear-EventRecord"),
        ),
        (
            (f"catch {{ {STAYS} }}", "catch { throw }"),
            (f"            {TIME_LEFT}\n", ""),
            (f"else {{ {FOLDER_MAY_STAY} }}", "else { Clear-Tree -Path $folder -TimeoutSeconds $left }"),
            (f"    {LIST_MAY_FAIL}\n        {RUNNING}\n", f"    {RUNNING}\n    if ($true) {{\n"),
            (FILES_MAY_FAIL, "if ($true) {"),
            (FILE_MAY_STAY, "Clear-Tree -Path $file"),
            (ALL_EVENTS_MAY_STAY, "if ($true) {"),
            (EVENTS_MAY_STAY, "$null = $session.ClearLog($name)"),
        ),
    ),
    Mend(
        "G4-an-agent-is-refused-and-state-goes",
        SEAL,
        (
            only_where(IN_FOLDER, REFUSE, within="Assert-NoAgent"),
            only_where("Test-RestartPending", "throw 'Windows has a restart pending, because", within="Invoke-Seal"),
            in_order("& $Finish", "Clear-EventRecord -Timeout", "Wait-Success -Seconds 30", within="Invoke-Seal"),
        ),
        (
            (f"if ({IN_FOLDER}) {{", "if ($program -eq $Folder) {"),
            (
                "if (Test-RestartPending) { throw 'Windows has a restart pending, b",
                "if ($false) { throw 'Windows has a b",
            ),
            ("    Clear-EventRecord -TimeoutSeconds 300\n", ""),
        ),
    ),
    Mend(
        "G4-nothing-behind-a-link-is-touched",
        COMMON,
        (
            in_order(f"if ({IS_LINK}) {{ return }}", "{ Get-TreeEntry -Path $entry }", within="Get-TreeEntry"),
            in_order("foreach ($entry in $entries) {", DELETE_TREE, within="Clear-Tree"),
            tried(LIST_TREE, within="Clear-Tree", catch="$entries = @()"),
            tried(MAKE_NORMAL, within="Clear-Tree", catch="continue"),
            handed_to("Wait-Success -Seconds $TimeoutSeconds -Try {", DELETE_TREE, within="Clear-Tree"),
        ),
        (
            (f"if ({IS_LINK}) {{ return }}", f"if ({IS_LINK}) {{ $Path }}"),
            (
                f"try {{ {LIST_TREE} }}",
                "try { $entries = [System.IO.Directory]::GetFileSystemEntries($Path, '*', 'AllDirectories') }",
            ),
            ("catch { $entries = @() }", "catch { throw }"),
            ("catch { continue }\n        }\n        [", "catch { throw }\n        }\n        ["),
            (f"        {DELETE_TREE}\n", ""),
            ("Wait-Success -Seconds $TimeoutSeconds -Try {", "Wait-Success -Seconds 30 -Try {"),
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
