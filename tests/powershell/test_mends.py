"""What a fault once taught the scripts, where no case for Windows can show it: each mend, and that its undoing is seen.

A case shows all that Windows shows. These look at the text: HNS, Windows Update's answers, a full disk, a power cut.
"""

from __future__ import annotations

import pytest

from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import handed_to, in_order, only_where, tried
from tests.unit.test_docs_faults import REALITY, rows

GUEST = "packer/guest"
ENTRY = f"{GUEST}/start.ps1"
POD_NETWORK = "ansible-win/roles/cni/files/set-pod-network.ps1"
RESET_NODE = "ansible-win/roles/kubernetes/files/reset-node.ps1"
LOGS, UPDATES = f"{GUEST}/logs.ps1", "ansible-win/roles/updates/files/install-updates.ps1"

PRINT_EVENTS = '$line = "qe $Name /c:200 /rd:true /f:text"'
START_PRINTING = "$process = [System.Diagnostics.Process]::Start($start)"
PRINTED = "if (-not $process.WaitForExit(30000))"
NOT_BUSY = "$_.Exception.GetBaseException().HResult -ne -2145124330 -or $Worker.RebootRequiredBeforeInstallation -or"
NO_MORE_TIME = "$clock.Elapsed.TotalSeconds -gt 1200) { throw }"
OPEN_ALONE = "$stream = New-Object -TypeName System.IO.FileStream -ArgumentList $Path, 'Open', 'Write', 'None'"
OVERWRITE = "$null = $stream.Write((New-Object -TypeName 'byte[]' -ArgumentList ([int]$stream.Length)), 0,"
FLUSH = "$null = $stream.Flush($true)"
READ_SECRETS = "$text = [System.IO.File]::ReadAllText($file)"
IS_BASE64 = '="(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"'
WHOLE = rf"""'\A(\$env:IMAGEGEN_[A-Z]+{IS_BASE64};\s*)+(\$env:(?!IMAGEGEN_)\w+="[^"]*";\s*)*\z'"""
CUT_OFF = f"if ($text -cnotmatch {WHOLE}) {{ throw 'Packer did not upload all credentials,"
MAY_READ = "[System.IO.File]::Exists($file) -and @($args) -notcontains '-Check'"
START_NSSM = "if ($value) { $null = (Get-Service -Name $name).Start() }"
AWAIT_STOP = "Wait-ServiceState -Name $name -State 'stopped' -Context $context"
REMOVE_NETWORK = (
    "if ($one.Type -in 'L2Bridge', 'L2Tunnel', 'Overlay') { $null = Invoke-Hns -Method DELETE "
    '-Path "/networks/$($one.ID)" }'
)
ROTATE = "ansible-win/roles/kubernetes/files/rotate-logs.ps1"
SEAL = "packer/guest/seal.psm1"
VOLUME = "packer/guest/kinds/volume.ps1"
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
END_ONLY = "$null = $log.Seek([System.Math]::Max([long]0, $log.Length - 2 * $Size), 'Begin')"
SHIFT = '[System.IO.File]::Move("$Path.$($number - 1)", "$Path.$number")'
DELETE_OLDEST = '[System.IO.File]::Delete("$Path.$free")'
NAME_COPY = '[System.IO.File]::Move("${Path}.new", "$Path.1")'
RUN_OPTIONAL = "Invoke-Program -FilePath $FilePath -ArgumentList $ArgumentList -TimeoutSeconds"
COMPILE = "Invoke-Optional -FilePath $ngen -ArgumentList 'executeQueuedItems', "
OPTIONAL_FAILED = (
    "[System.Console]::Out.WriteLine(\"$FilePath $($ArgumentList -join ' ') failed: $($_.Exception.Message)\")"
)

NEVER_EXPIRE = "'accounts', '/maxpwage:unlimited'"
LIST_BUILDER = "Write-TextFile -Path 'C:\\Windows\\Setup\\Scripts\\accounts.txt' -Text \"500`r`n\""
RUN_SYSPREP = "Invoke-Program -FilePath (Get-SystemTool -Name 'Sysprep\\sysprep.exe')"
AWAIT_PARTITION = "$found = @(Wait-Until -Seconds 60 -Every 2 -Test {"


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
FIRST_BOOT = "ansible-win/roles/cloudbase-init/files/first-boot.ps1"
COMMON = "packer/guest/common.psm1"

ADDRESSES = (
    "$left = @(\"$PSScriptRoot\\pod-network.json\", 'C:\\run\\flannel\\subnet.env', 'C:\\var\\lib\\cni\\networks')"
)
PLUGINS_FILES = (
    'if ([System.IO.File]::Exists("$PSScriptRoot\\cni\\state.txt")) { $left += [System.IO.File]::ReadAllLines('
)
CLEAR_FILES = "foreach ($path in $left) { Clear-Tree -Path $path }"
REMOVE_LISTS = "foreach ($one in @(Invoke-Hns -Method GET -Path '/policylists/')) { $null = Invoke-Hns -Method DELETE"
REMOVE_NETWORKS = "foreach ($one in @(Invoke-Hns -Method GET -Path '/networks/')) { if ($one.Type -in"
CALL_HNS = "$code = [Imagegen.Hns]::HNSCall($Method, $Path, $Request, [ref]$response)"
NO_ANSWER = "if (-not $response) { throw ('HNS refused {0} {1}: 0x{2:x8}' -f $Method, $Path, $code) }"
OTHER_RANGE = "elseif ($network.Subnets[0].AddressPrefix -ne $range) { throw"
NO_ROUTE = "if (-not $found) { throw 'this machine has no default route"
BY_NUMBER = 'Where-Object -FilterScript { $_.SID -like "S-1-5-21-*-$number" } | Remove-CimInstance'
COUNT_UPDATES = "$told.found = @(foreach ($update in $chosen) { [string]$update.Title })"
RESTORE = "Set-Network -Request ([System.IO.File]::ReadAllText($request))"
RETRY = "Wait-Success -Seconds 300 -Try {"
KEEP_REQUEST = "Write-TextFile -Path $request -Text $texts['network.json']"

MENDS = (
    Mend(
        "logs-a-message-that-windows-cannot-render-keeps-no-event-away",
        LOGS,
        (
            in_order(PRINT_EVENTS, START_PRINTING, PRINTED, "return ,$script:Utf8", within="Read-Event"),
            tried("$data = & $Read $limit", within="Add-Log", catch="$script:Notes.Add("),
        ),
        (
            (PRINT_EVENTS, PRINT_EVENTS.replace("text", "xml")),
            (PRINTED, "if ($false)"),
            ('catch { $null = $script:Notes.Add("${Path}: ', 'catch { throw ("${Path}: '),
        ),
    ),
    Mend(
        "updates-another-installation-is-waited-for",
        UPDATES,
        (
            tried("return $Worker.Install()", within="Install-Update", catch=NO_MORE_TIME),
            in_order(
                NOT_BUSY,
                "Start-Sleep -Seconds 15",
                within="Install-Update",
            ),
            in_order("$Worker.Updates = $all", "$result = Install-Update -Worker $Worker", within="Invoke-Step"),
        ),
        (
            (NO_MORE_TIME, "$false) { throw }"),
            (" -or $Worker.RebootRequiredBeforeInstallation", ""),
            ("$_.Exception.GetBaseException().HResult -ne", "$_.Exception.HResult -ne"),
            ("            Start-Sleep -Seconds 15\n", ""),
            ("$result = Install-Update -Worker $Worker", "$result = $Worker.Install()"),
        ),
    ),
    Mend(
        "P16-credentials-are-whole-and-overwritten",
        ENTRY,
        (
            in_order(READ_SECRETS, "Remove-Path -Path $file", CUT_OFF, "$secrets[$found.Groups[1].Value] ="),
            only_where(MAY_READ, READ_SECRETS),
            in_order(OVERWRITE, FLUSH, within="Remove-Path"),
            in_order(OPEN_ALONE, "[System.IO.File]::Delete($Path)", within="Remove-Path"),
        ),
        (
            (CUT_OFF, CUT_OFF.replace("throw '", "$null = '")),
            (f"if ({MAY_READ}) {{", "if ([System.IO.File]::Exists($file)) {"),
            (OVERWRITE, "$null = @("),
            (FLUSH, "$null = $stream.Flush()"),
            (OPEN_ALONE, OPEN_ALONE.replace("'Open', 'Write'", "'Create', 'Write'")),
        ),
    ),
    Mend(
        "P18-a-service-under-nssm-may-end-its-program",
        POD_NETWORK,
        (in_order("Set-Service -Name $name", AWAIT_STOP, START_NSSM, within="Start-NodeService"),),
        ((START_NSSM, "if ($value) { Start-Service -Name $name }"), (AWAIT_STOP, "Stop-Service -Name $name -Force")),
    ),
    Mend(
        "P18-a-network-that-stays-ends-the-reset",
        RESET_NODE,
        (in_order(REMOVE_NETWORK),),
        ((REMOVE_NETWORK, REMOVE_NETWORK.replace("DELETE", "GET")),),
    ),
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
        "N15-a-storage-service-that-knows-no-partition-yet-is-waited-for",
        VOLUME,
        (handed_to(AWAIT_PARTITION, "\n                Get-CimInstance"),),
        ((AWAIT_PARTITION, "$found = @(& {"),),
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
        "find-Q2-nothing-of-the-old-networks-is-left",
        RESET_NODE,
        (in_order(ADDRESSES, PLUGINS_FILES, CLEAR_FILES, REMOVE_LISTS, REMOVE_NETWORKS),),
        (
            (PLUGINS_FILES, PLUGINS_FILES.replace("$left +=", "$null =")),
            ("'C:\\run\\flannel\\subnet.env', ", ""),
            (REMOVE_LISTS, REMOVE_LISTS.replace("DELETE", "GET")),
        ),
    ),
    Mend(
        "find-Q5-a-network-with-another-range-is-refused",
        POD_NETWORK,
        (in_order(OTHER_RANGE, within="Set-Network"),),
        ((OTHER_RANGE, "elseif ($range -eq '') { throw"),),
    ),
    Mend(
        "find-Q7-a-code-of-hns-is-told",
        COMMON,
        (in_order("Add-Type", CALL_HNS, NO_ANSWER, "$answer = ", within="Invoke-Hns"), in_order("extern int HNSCall(")),
        (("extern int HNSCall", "extern void HNSCall"), (f"    {NO_ANSWER}\n", "")),
    ),
    Mend(
        "find-Q10-a-machine-without-a-default-route-says-so",
        POD_NETWORK,
        (in_order("$found = Wait-Until -Seconds 60", NO_ROUTE, "return $found", within="Get-NodeAddress"),),
        ((NO_ROUTE, NO_ROUTE.replace("throw", "$null =")),),
    ),
    Mend(
        "find-Q11-a-profile-is-found-after-its-account-was-renamed",
        FIRST_BOOT,
        (in_order(BY_NUMBER, within="Close-BuilderAccount"),),
        ((BY_NUMBER, BY_NUMBER.replace('$_.SID -like "S-1-5-21-*-$number"', "$_.LocalPath -eq $account.Name")),),
    ),
    Mend(
        "find-Q12-updates-are-counted-and-not-their-kb-numbers",
        UPDATES,
        (in_order("$chosen = @(", COUNT_UPDATES),),
        ((COUNT_UPDATES, "$told.found = @(foreach ($update in $chosen) { Get-Kb -Update $update })"),),
    ),
    Mend(
        "content-C13-the-network-is-made-again-at-a-start",
        POD_NETWORK,
        (
            handed_to(RETRY, RESTORE),
            only_where("$Restore", RETRY),
            in_order("Set-Network -Request $texts['network.json']", KEEP_REQUEST),
        ),
        (
            (RETRY, "& {"),
            ("if ($Restore) {\n", "if ($true) {\n"),
            (f"    {KEEP_REQUEST}\n", ""),
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
    named = {**rows(), **rows(REALITY)}
    test = "tests/powershell/test_mends.py::test_script_has_the_mend"

    assert [mend.id for mend in MENDS if f"{test}[{mend.id}]" not in named.get(mend.row, [])] == []
