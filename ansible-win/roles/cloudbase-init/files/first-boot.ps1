# Once, at a node's first boot: takes away the firewall rules and certificates by which the builder came in. Its listener is gone since the image was sealed.
[CmdletBinding()]
param()
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

# Every inbound rule for the builder's port, whoever made it: ours on AWS, the platform's on Azure.
function Clear-BuilderRule {
    [CmdletBinding()]
    param()
    foreach ($filter in @(Get-NetFirewallPortFilter -Protocol TCP | Where-Object -FilterScript { @($_.LocalPort) -contains '5986' })) {
        Get-NetFirewallRule -AssociatedNetFirewallPortFilter $filter | Where-Object -FilterScript { [string]$_.Direction -eq 'Inbound' } | Remove-NetFirewallRule
    }
}

# The certificates that the sealed listeners used, with their keys.
function Clear-BuilderCertificate {
    [CmdletBinding()]
    param([string]$List)
    if (-not [System.IO.File]::Exists($List)) { return }
    foreach ($print in [System.IO.File]::ReadAllLines($List)) {
        if ($print -notmatch '\A[0-9A-Fa-f]{40}\z') { continue }
        $path = "Cert:\LocalMachine\My\$print"
        if (Test-Path -LiteralPath $path) { Remove-Item -LiteralPath $path -DeleteKey }
    }
    [System.IO.File]::Delete($List)
}

$code = 0
try {
    # Each is done whatever became of the other.
    try { Clear-BuilderRule }
    finally { Clear-BuilderCertificate -List ([System.IO.Path]::Combine($PSScriptRoot, 'certificates.txt')) }
}
catch {
    $code = 1
    [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)")
    [System.Console]::Out.WriteLine($_.ScriptStackTrace)
}
exit $code
