"""What readers and attackers found in the scripts that run on a node: each mend of docs/faults.md in its section."""

from __future__ import annotations

import pytest

from tests.powershell.mend import Mend, find_faults, find_unseen
from tests.powershell.standing import handed_to, in_order, only_at_last, only_where
from tests.unit.test_docs_faults import rows

POD_NETWORK = "ansible-win/roles/cni/files/set-pod-network.ps1"
RESET_NODE = "ansible-win/roles/kubernetes/files/reset-node.ps1"
START_KUBELET = "ansible-win/roles/kubernetes/files/start-kubelet.ps1"
ROTATE = "ansible-win/roles/kubernetes/files/rotate-logs.ps1"
FIRST_BOOT = "ansible-win/roles/cloudbase-init/files/first-boot.ps1"
UPDATES = "ansible-win/roles/updates/files/install-updates.ps1"
COMMON = "packer/guest/common.psm1"

LOCK = (
    'try { $lock = New-Object -TypeName System.IO.FileStream -ArgumentList "$PSScriptRoot\\reset-node.lock", '
    "'OpenOrCreate', 'Write', 'None' }"
)
AWAIT_FIRST, AWAIT_THEN = "Wait-Kubeadm -TimeoutSeconds 120", "Wait-Kubeadm -TimeoutSeconds 60"
TAKE_COPY = 'Copy-Item -LiteralPath "$state\\$name" -Destination "${kept}.new" -Recurse -Force'
NAME_COPIES = 'Wait-Success -Seconds 30 -Try { [System.IO.Directory]::Move("${kept}.new", $kept) }'
NOT_KEPT = "-not [System.IO.Directory]::Exists($kept)"
MAKE_STATE = '$null = [System.IO.Directory]::CreateDirectory("$state\\pods")'
CLOSE_STATE = "-ArgumentList (@($state) + $rights)"
PUT_BACK = (
    "foreach ($path in [System.IO.Directory]::GetFileSystemEntries($kept)) { "
    "Copy-Item -LiteralPath $path -Destination $state -Recurse -Force }"
)
RETIRE_COPIES = 'Wait-Success -Seconds 30 -Try { [System.IO.Directory]::Move($kept, "${kept}.new") }'
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
SET_NORMAL = "[System.IO.File]::SetAttributes("
ASK = "$last.Output = $asked.Output"
OTHER_RANGE = "elseif ($network.Subnets[0].AddressPrefix -ne $range) { throw"
NAMED = 'foreach ($one in Read-KubeadmArgument -Path "$StateFolder\\kubeadm-flags.env") {'
LOWER_CASE = "$node = $node.Trim().ToLowerInvariant()"
A_LINE = "if ($line -cmatch '\\A\\s*KUBELET_KUBEADM_ARGS=(.*?)\\s*\\z') { $text = $Matches[1] }"
WHOLE_RANGE = "if ($range -notmatch '\\A[0-9.]+/([1-9]|[12][0-9])\\z' -or $range -notlike \"$first/*\") { throw"
FIRST_ADDRESS = "$first = try { Get-Address -Range $range -Place 0 } catch { '' }"
READ_PLACES = '$places = @([System.IO.File]::ReadAllLines("$folder\\places.txt")'
LISTED = "foreach ($file in @('places.txt') + @(foreach ($line in $places) { ($line -split ' ', 2)[0] })) {"
NO_ROUTE = "if (-not $found) { throw 'this machine has no default route"
OLDEST = '[System.IO.File]::Delete("$Path.$free")'
OLDEST_WRITABLE = 'if ([System.IO.File]::Exists("$Path.$free")) { [System.IO.File]::SetAttributes("$Path.$free",'
BY_NUMBER = 'Where-Object -FilterScript { $_.SID -like "S-1-5-21-*-$number" } | Remove-CimInstance'
COUNT_UPDATES = "$told.found = @(foreach ($update in $chosen) { [string]$update.Title })"
RESTORE = "Set-Network -Request ([System.IO.File]::ReadAllText($request))"
RETRY = "Wait-Success -Seconds 300 -Try {"
KEEP_REQUEST = "Write-TextFile -Path $request -Text $texts['network.json']"

MENDS = (
    Mend(
        "Q1-one-reset-runs-at-a-time-and-waits-for-kubeadm",
        RESET_NODE,
        (
            in_order(LOCK, AWAIT_FIRST, "Set-Service -Name $name -StartupType Disabled"),
            in_order("$ended = Wait-Until", 'throw "kubeadm.exe still runs after', within="Wait-Kubeadm"),
            in_order(AWAIT_THEN, PUT_BACK),
            only_at_last("$lock.Dispose()"),
        ),
        (
            ("'OpenOrCreate', 'Write', 'None'", "'OpenOrCreate', 'Write', 'ReadWrite'"),
            (f"    {AWAIT_FIRST}\n", ""),
            ('if (-not $ended) { throw "', 'if (-not $ended) { $null = "'),
            (f"        {AWAIT_THEN}\n", ""),
            ("    $lock.Dispose()\n}\nexit 0", "}\n$lock.Dispose()\nexit 0"),
        ),
    ),
    Mend(
        "Q1-what-the-image-has-is-copied-and-the-copies-go-last",
        RESET_NODE,
        (
            in_order("foreach ($name in 'credential-provider', 'credential-provider-config.yaml') {", NAME_COPIES),
            only_where(NOT_KEPT, TAKE_COPY),
            in_order(PUT_BACK, RETIRE_COPIES, '\n        Clear-Tree -Path "${kept}.new"\n    }'),
        ),
        (
            (f"        {NAME_COPIES}\n", ""),
            (f"if ({NOT_KEPT}) {{", "if ($true) {"),
            (PUT_BACK, PUT_BACK.replace("Copy-Item", "Move-Item")),
            (f"        {RETIRE_COPIES}\n", ""),
        ),
    ),
    Mend(
        "Q2-nothing-of-the-old-networks-is-left",
        RESET_NODE,
        (in_order(ADDRESSES, PLUGINS_FILES, CLEAR_FILES, REMOVE_LISTS, REMOVE_NETWORKS),),
        (
            (PLUGINS_FILES, PLUGINS_FILES.replace("$left +=", "$null =")),
            ("'C:\\run\\flannel\\subnet.env', ", ""),
            (REMOVE_LISTS, REMOVE_LISTS.replace("DELETE", "GET")),
        ),
    ),
    Mend(
        "Q3-kubelets-folder-is-there-and-closed-before-anything-is-put-back",
        RESET_NODE,
        (in_order(MAKE_STATE, CLOSE_STATE, PUT_BACK),),
        ((f"        {MAKE_STATE}\n", ""), (CLOSE_STATE, "-ArgumentList (@($kept) + $rights)")),
    ),
    Mend(
        "Q4-the-words-of-kubectl-are-told",
        POD_NETWORK,
        (in_order(ASK, within="Get-PodRange"), in_order('or is -PodCidr missing? $($last.Output)".Trim() }')),
        ((f"        {ASK}\n", ""), ("missing? $($last.Output)", "missing?")),
    ),
    Mend(
        "Q5-a-network-with-another-range-is-refused",
        POD_NETWORK,
        (in_order(OTHER_RANGE, within="Set-Network"),),
        ((OTHER_RANGE, "elseif ($range -eq '') { throw"),),
    ),
    Mend(
        "Q6-a-read-only-configuration-is-deleted",
        RESET_NODE,
        (in_order(CLEAR_FILES),),
        (
            (
                CLEAR_FILES,
                CLEAR_FILES.replace("Clear-Tree -Path", "[System.IO.File]::Delete").replace("$path }", "($path) }"),
            ),
        ),
    ),
    Mend(
        "Q6-a-read-only-configuration-is-replaced",
        COMMON,
        (
            in_order(
                "if ([System.IO.File]::Exists($To)) { [System.IO.File]::SetAttributes($To,", within="Move-IntoPlace"
            ),
        ),
        (("{ [System.IO.File]::SetAttributes($To, [System.IO.FileAttributes]::Normal) }", "{ $null = $To }"),),
    ),
    Mend(
        "Q7-a-code-of-hns-is-told",
        COMMON,
        (in_order("Add-Type", CALL_HNS, NO_ANSWER, "$answer = ", within="Invoke-Hns"), in_order("extern int HNSCall(")),
        (("extern int HNSCall", "extern void HNSCall"), (f"    {NO_ANSWER}\n", "")),
    ),
    Mend(
        "Q8-the-last-arguments-of-kubeadm-count",
        COMMON,
        (in_order(A_LINE, within="Read-KubeadmArgument"),),
        ((A_LINE, A_LINE.replace("if (", "if ($text -eq '' -and ", 1)),),
    ),
    Mend(
        "Q8-the-name-of-a-node-is-kubelets",
        POD_NETWORK,
        (in_order(NAMED, LOWER_CASE, "$values = @{"),),
        ((f"{LOWER_CASE}\n", ""), (NAMED, NAMED.replace("Read-KubeadmArgument -Path", "Get-Content -LiteralPath"))),
    ),
    Mend(
        "Q8-kubelet-gets-the-arguments-of-the-same-reader",
        START_KUBELET,
        (in_order('Import-Module -Name "$PSScriptRoot\\common.psm1"', "@(Read-KubeadmArgument -Path $flags)"),),
        (("@(Read-KubeadmArgument -Path $flags)", "@([System.IO.File]::ReadAllLines($flags))"),),
    ),
    Mend(
        "Q9-a-range-is-whole",
        POD_NETWORK,
        (in_order(FIRST_ADDRESS, WHOLE_RANGE),),
        (
            (' -or $range -notlike "$first/*"', ""),
            (FIRST_ADDRESS, "$first = Get-Address -Range $range -Place 0"),
        ),
    ),
    Mend(
        "Q10-only-what-the-image-has-is-a-template",
        POD_NETWORK,
        (in_order(READ_PLACES, LISTED, "$needed = "),),
        ((LISTED, "foreach ($file in [System.IO.Directory]::GetFiles($folder)) {"),),
    ),
    Mend(
        "Q10-a-machine-without-a-default-route-says-so",
        POD_NETWORK,
        (in_order("$found = Wait-Until -Seconds 60", NO_ROUTE, "return $found", within="Get-NodeAddress"),),
        ((NO_ROUTE, NO_ROUTE.replace("throw", "$null =")),),
    ),
    Mend(
        "Q10-a-read-only-copy-of-a-log-is-deleted",
        ROTATE,
        (in_order(OLDEST_WRITABLE, OLDEST, within="Move-Copy"),),
        ((OLDEST_WRITABLE, OLDEST_WRITABLE.replace("SetAttributes", "GetAccessControl")),),
    ),
    Mend(
        "Q11-a-profile-is-found-after-its-account-was-renamed",
        FIRST_BOOT,
        (in_order(BY_NUMBER, within="Close-BuilderAccount"),),
        ((BY_NUMBER, BY_NUMBER.replace('$_.SID -like "S-1-5-21-*-$number"', "$_.LocalPath -eq $account.Name")),),
    ),
    Mend(
        "Q12-updates-are-counted-and-not-their-kb-numbers",
        UPDATES,
        (in_order("$chosen = @(", COUNT_UPDATES),),
        ((COUNT_UPDATES, "$told.found = @(foreach ($update in $chosen) { Get-Kb -Update $update })"),),
    ),
    Mend(
        "C13-the-network-is-made-again-at-a-start",
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
    named = rows()
    test = "tests/powershell/test_script_mends.py::test_script_has_the_mend"
    found = {mend.id: f"{'content' if mend.row.startswith('C') else 'find'}-{mend.row}" for mend in MENDS}

    assert [name for name, row in found.items() if f"{test}[{name}]" not in named.get(row, [])] == []
