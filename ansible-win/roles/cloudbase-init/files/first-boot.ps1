# Once, at a node's first boot: takes away the firewall rules and certificates by which the builder came in. Its listener is gone since the image was sealed.
[CmdletBinding()]
param()
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

# Every inbound rule for the builder's port, whoever made it: the image's own and the platform's. Returns a reason for each that stays.
function Clear-BuilderRule {
    [CmdletBinding()]
    param()
    foreach ($filter in @(Get-NetFirewallPortFilter -Protocol TCP -ErrorAction Stop | Where-Object -FilterScript { @($_.LocalPort) -contains '5986' })) {
        try { $rules = @(Get-NetFirewallRule -AssociatedNetFirewallPortFilter $filter -ErrorAction Stop | Where-Object -FilterScript { [string]$_.Direction -eq 'Inbound' }) }
        catch {
            "a firewall rule for port 5986 cannot be read: $($_.Exception.Message)"
            continue
        }
        foreach ($rule in $rules) {
            try { $rule | Remove-NetFirewallRule -ErrorAction Stop }
            catch { "firewall rule '$($rule.DisplayName)' stays: $($_.Exception.Message)" }
        }
    }
}

# The certificates that the sealed listeners used, with their keys. Returns a reason for each that stays; as long as one does, so does the list.
function Clear-BuilderCertificate {
    [CmdletBinding()]
    param([string]$List)
    if (-not [System.IO.File]::Exists($List)) { return }
    $reasons = @(foreach ($print in [System.IO.File]::ReadAllLines($List)) {
            if ($print -notmatch '\A[0-9A-Fa-f]{40}\z') { continue }
            $path = "Cert:\LocalMachine\My\$print"
            try { if (Test-Path -LiteralPath $path) { Remove-Item -LiteralPath $path -DeleteKey -ErrorAction Stop } }
            catch { "certificate $print stays: $($_.Exception.Message)" }
        })
    if ($reasons.Count -eq 0) { [System.IO.File]::Delete($List) }
    $reasons
}

$code = 0
$list = [System.IO.Path]::Combine($PSScriptRoot, 'certificates.txt')
# Each by itself, whatever became of the other.
foreach ($part in @({ Clear-BuilderRule }, { Clear-BuilderCertificate -List $list })) {
    try { $reasons = @(& $part) }
    catch { $reasons = @($_.Exception.Message, $_.ScriptStackTrace) }
    foreach ($reason in $reasons) {
        $code = 1
        [System.Console]::Out.WriteLine("failed: $reason")
    }
}
exit $code
