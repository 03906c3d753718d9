# Runs once at a node's first boot: removes the builder's firewall rules and WinRM certificates, and closes its account. The listener was removed when the image was sealed.
[CmdletBinding()]
param()
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

# Removes all inbound rules for the builder's port: the image's own and the platform's. Returns a reason for each that could not be removed.
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
            catch { "firewall rule '$($rule.DisplayName)' could not be removed: $($_.Exception.Message)" }
        }
    }
}

# Removes the certificates of the removed listeners, with their keys. Returns a reason for each that could not be removed, and then keeps the list.
function Clear-BuilderCertificate {
    [CmdletBinding()]
    param([string]$List)
    if (-not [System.IO.File]::Exists($List)) { return }
    $reasons = @(foreach ($print in [System.IO.File]::ReadAllLines($List)) {
            if ($print -notmatch '\A[0-9A-Fa-f]{40}\z') { continue }
            $path = "Cert:\LocalMachine\My\$print"
            try { if (Test-Path -LiteralPath $path) { Remove-Item -LiteralPath $path -DeleteKey -ErrorAction Stop } }
            catch { "certificate $print could not be removed: $($_.Exception.Message)" }
        })
    if ($reasons.Count -eq 0) { [System.IO.File]::Delete($List) }
    $reasons
}

# Closes the accounts in the list: a password that nobody knows, and disabled. The list holds the last number of each account's SID,
# because the cloud may have renamed the account, and Windows gives the machine a new SID at first boot. Returns a reason for each that could not be closed.
function Close-BuilderAccount {
    [CmdletBinding()]
    param([string]$List)
    if (-not [System.IO.File]::Exists($List)) { return }
    $numbers = @([System.IO.File]::ReadAllLines($List))
    $reasons = @(foreach ($account in @(Get-LocalUser -ErrorAction Stop)) {
            if ($numbers -notcontains $account.SID.Value.Substring($account.SID.Value.LastIndexOf('-') + 1)) { continue }
            try {
                $password = New-Object -TypeName System.Security.SecureString
                foreach ($letter in "aA1!$([System.Guid]::NewGuid())$([System.Guid]::NewGuid())".ToCharArray()) { $password.AppendChar($letter) }
                Set-LocalUser -SID $account.SID -Password $password -ErrorAction Stop
                Disable-LocalUser -SID $account.SID -ErrorAction Stop
                # Its old name is free for an account of the node.
                Rename-LocalUser -SID $account.SID -NewName 'imagegen-builder' -ErrorAction Stop
            }
            catch { "account $($account.Name) could not be closed: $($_.Exception.Message)" }
        })
    if ($reasons.Count -eq 0) { [System.IO.File]::Delete($List) }
    $reasons
}

$code = 0
$accounts = [System.IO.Path]::Combine($PSScriptRoot, 'accounts.txt')
$list = [System.IO.Path]::Combine($PSScriptRoot, 'certificates.txt')
# Each part runs even if another failed.
foreach ($part in @({ Clear-BuilderRule }, { Clear-BuilderCertificate -List $list }, { Close-BuilderAccount -List $accounts })) {
    try { $reasons = @(& $part) }
    catch { $reasons = @($_.Exception.Message, $_.ScriptStackTrace) }
    foreach ($reason in $reasons) {
        $code = 1
        [System.Console]::Out.WriteLine("failed: $reason")
    }
}
exit $code
