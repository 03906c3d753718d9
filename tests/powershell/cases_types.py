"""Cases of the rules on .NET."""

from __future__ import annotations

from tests.powershell import rules_types as r
from tests.powershell.cases import Bad, Good

DOWNLOAD = "packer/guest/download.psm1"
KUBELET = "ansible-win/roles/kubernetes/files/start-kubelet.ps1"

GOOD = (
    Good(r.known_types, "[CmdletBinding()]\nparam([string[]]$A)\n$b = [System.IO.File]::ReadAllText($A) -is [int]\n"),
    Good(r.known_types, "New-Object -TypeName 'System.Collections.Generic.SortedSet[string]'\n$a = [uint32]1\n"),
    Good(r.network_types, "New-Object -TypeName System.Net.Http.HttpClient\n", path=DOWNLOAD),
    Good(r.network_types, "New-Object -TypeName System.IO.FileInfo -ArgumentList $a\n"),
    Good(r.process_types, "[System.Diagnostics.Process]::Start($a)\n", path=KUBELET),
    Good(r.new_object_names_a_type, "New-Object -TypeName 'System.Uri' -ArgumentList $a\n"),
    Good(r.static_members, "[System.IO.File]::Copy($a, $b, $true)\n[Math]::Max(1, $x.Count(1, 2))\n"),
    Good(r.static_members, "[System.StringComparer]::Ordinal\n"),
    Good(r.static_members, "[regex]::Replace($a, 'b', { param($F) $F })\n"),
    Good(r.old_members, "$p.Kill()\n$a.Split(';')\n$a.Split(\"`t\")\n$a.Replace('xx', 'yy')\n$a.Contains('x')\n"),
    Good(r.waits_have_a_time, "$p.WaitForExit(1000)\n$s.WaitForStatus('Running', $t)\n"),
    Good(r.waits_have_a_time, "[System.Threading.Tasks.Task]::WaitAll($t, 5)\n"),
    Good(r.waits_have_a_time, "$p.WaitForExit()\n", path=KUBELET),
    Good(r.network_settings, "if ($a -ne 0) { [System.Net.ServicePointManager]::SecurityProtocol = $a }\n"),
    Good(r.network_settings, "$h = New-Object -TypeName System.Net.Http.HttpClientHandler\n$h.Proxy = $p\n"),
)  # fmt: skip

BAD = (
    Bad(r.network_settings, "$a = 1\n[System.Net.ServicePointManager]::SecurityProtocol = $a\n", "SecurityProtocol", 2),
    Bad(r.network_settings, "$h = New-Object -TypeName System.Net.Http.HttpClientHandler\n", "the plan's proxy"),
    Bad(r.known_types, "$a = 1\n[System.IO.Nothing]::Exists($a)\n", "[io.nothing]", 2),
    Bad(r.known_types, "param([System.Half]$A)\n", "[half]"),
    Bad(r.known_types, "New-Object -TypeName System.Net.WebClient\n", "[net.webclient]"),
    Bad(r.known_types, "try { 1 } catch [System.Unheard] { throw }\n", "[unheard]"),
    Bad(r.known_types, "param([ValidateScript({ $true })]$A)\n", "[validatescript]"),
    Bad(r.network_types, "New-Object -TypeName System.Net.Http.HttpClient\n", "download.psm1"),
    Bad(r.network_types, "[Net.ServicePointManager]::SecurityProtocol\n", "download.psm1"),
    Bad(r.process_types, "[System.Diagnostics.Process]::Start($a)\n", "Invoke-Native"),
    Bad(r.new_object_names_a_type, "New-Object System.Uri -ArgumentList $a\n", "-TypeName"),
    Bad(r.new_object_names_a_type, "New-Object -TypeName $type\n", "-TypeName"),
    Bad(r.new_object_names_a_type, "New-Object -ComObject 'WScript.Shell'\n", "-TypeName"),
    Bad(r.new_object_names_a_type, "New-Object -ComObject 'Microsoft.Update.Sessions'\n", "-TypeName"),
    Bad(r.static_members, "[System.IO.Path]::GetRelativePath($a, $b)\n", "::getrelativepath"),
    Bad(r.static_members, "[System.IO.File]::Move($a, $b, $true)\n", "takes 2 arguments at most in 5.1, not 3"),
    Bad(r.static_members, "[Convert]::ToHexString($a)\n", "::tohexstring"),
    Bad(r.static_members, "$type::Parse($a)\n", "not a literal type"),
    Bad(r.static_members, "$a = [System.StringComparison]::InvariantCulture\n", "::invariantculture"),
    Bad(r.old_members, "$p.Kill($true)\n", ".kill takes 0"),
    Bad(r.old_members, "$a.Replace('x', 'y', $b)\n", ".replace takes 2"),
    Bad(r.old_members, "$i.ArgumentList.Add('x')\n", "Arguments"),
    Bad(r.old_members, "$a.Split('--')\n", "splits at each character"),
    Bad(r.old_members, "Get-Thing -Name $a.Contains('x', 'y')\n", ".contains takes 1"),
    Bad(r.waits_have_a_time, "$p.WaitForExit()\n", ".waitforexit without a time"),
    Bad(r.waits_have_a_time, "$t.Wait()\n", ".wait without a time"),
    Bad(r.waits_have_a_time, "[System.Threading.Tasks.Task]::WaitAny($t)\n", ".waitany without a time"),
    Bad(r.waits_have_a_time, "$s.WaitForStatus('Running')\n", ".waitforstatus without a time"),
    Bad(r.waits_have_a_time, "Get-Thing -Name $p.WaitForExit()\n", ".waitforexit without a time"),
)  # fmt: skip
