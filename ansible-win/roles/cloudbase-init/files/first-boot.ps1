# Runs once at a node's first boot: removes the builder's firewall rules and WinRM certificates, closes its account, and restricts an address of the platform.
# The listener was removed when the image was sealed.
Set-StrictMode -Version Latest; $ErrorActionPreference, $ProgressPreference = 'Stop', 'SilentlyContinue'

# Also the platform's own rule.
function Clear-BuilderRule { [CmdletBinding()] param()
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

function Clear-BuilderCertificate { [CmdletBinding()] param([string]$List)
    if (-not [System.IO.File]::Exists($List)) { return }
    $reasons = @(foreach ($print in [System.IO.File]::ReadAllLines($List)) {
            if ($print -notmatch '\A[0-9A-Fa-f]{40}\z') { continue }
            $path = "Cert:\LocalMachine\My\$print"
            try { if (Test-Path -LiteralPath $path) { Remove-Item -LiteralPath $path -DeleteKey -ErrorAction Stop } }
            catch {
                # Windows removes a certificate before its key.
                $what = if (Test-Path -LiteralPath $path) { 'certificate' } else { 'the key of the removed certificate' }
                "$what $print could not be removed: $($_.Exception.Message)"
            }
        })
    if ($reasons.Count -eq 0) { [System.IO.File]::Delete($List) }
    $reasons
}

# Closes the accounts in the list: disabled, with a password that nobody knows, without its profile and with another name, each even if another failed. The list holds the last number of each account's SID,
# because the cloud may have renamed the account, and Windows gives the machine a new SID at first boot. Returns a reason for each that failed, and then keeps the list.
function Close-BuilderAccount { [CmdletBinding()] param([string]$List)
    if (-not [System.IO.File]::Exists($List)) { return }
    $numbers = @([System.IO.File]::ReadAllLines($List))
    $reasons = @(foreach ($account in @(Get-LocalUser -ErrorAction Stop)) {
            $number = $account.SID.Value.Substring($account.SID.Value.LastIndexOf('-') + 1)
            if ($numbers -notcontains $number) { continue }
            try { Disable-LocalUser -SID $account.SID -ErrorAction Stop }
            catch { "account $($account.Name) could not be disabled: $($_.Exception.Message)" }
            try {
                $password = New-Object -TypeName System.Security.SecureString
                foreach ($letter in "aA1!$([System.Guid]::NewGuid())$([System.Guid]::NewGuid())".ToCharArray()) { $password.AppendChar($letter) }
                Set-LocalUser -SID $account.SID -Password $password -ErrorAction Stop
            }
            catch { "account $($account.Name) could not get another password: $($_.Exception.Message)" }
            # After the image was sealed, the entry of a profile may still have the old SID of its account, with the same number. Not by the account's name, which an earlier run may have changed.
            try { Get-CimInstance -ClassName 'Win32_UserProfile' -OperationTimeoutSec 60 -ErrorAction Stop | Where-Object -FilterScript { $_.SID -like "S-1-5-21-*-$number" } | Remove-CimInstance -OperationTimeoutSec 60 -ErrorAction Stop }
            catch { "the profile of account $($account.Name) could not be removed: $($_.Exception.Message)" }
            # Its old name is free for an account of the node.
            try { Rename-LocalUser -SID $account.SID -NewName 'imagegen-builder' -ErrorAction Stop }
            catch { "account $($account.Name) could not be renamed: $($_.Exception.Message)" }
        })
    if ($reasons.Count -eq 0) { [System.IO.File]::Delete($List) }
    $reasons
}

# Blocks an address of the platform, which containers must not use, for everybody but SYSTEM and the members of a group. Returns a reason for each account that could not be added.
# It runs at first boot, because the rule holds the SID of the group, and Windows gives the machine and its groups new SIDs after the image was sealed.
function Limit-Address { [CmdletBinding()] param([string]$File)
    if (-not [System.IO.File]::Exists($File)) { return }
    $wanted = ConvertFrom-Json -InputObject ([System.IO.File]::ReadAllText($File))
    $groups = @(Get-LocalGroup -ErrorAction Stop | Where-Object -FilterScript { $_.Name -eq $wanted.group })
    if ($groups.Count -eq 0) { $groups = @(New-LocalGroup -Name $wanted.group -Description 'Can use the restricted address of the cloud' -ErrorAction Stop) }
    $accounts = @(Get-LocalUser -ErrorAction Stop)
    foreach ($member in @($wanted.members)) {
        $account = @($accounts | Where-Object -FilterScript { $_.Name -eq $member })
        if ($account.Count -eq 0) {
            "account $member could not be added to group $($wanted.group): it does not exist"
            continue
        }
        try { Add-LocalGroupMember -SID $groups[0].SID -Member $account[0] -ErrorAction Stop }
        catch {
            # A node that was sealed again has its members already.
            if ($_.FullyQualifiedErrorId -notlike 'MemberExists,*') { "account $member could not be added to group $($wanted.group): $($_.Exception.Message)" }
        }
    }
    # A rule applies to the accounts that its text allows (A), and not to those that the text denies (D). S-1-1-0 is Everyone.
    $users = "O:LSD:(D;;CC;;;S-1-5-18)(D;;CC;;;$($groups[0].SID.Value))(A;;CC;;;S-1-1-0)"
    # A node that was sealed again has a rule with an old SID.
    $null = Remove-NetFirewallRule -Name $wanted.rule -ErrorAction SilentlyContinue
    $rule = @{
        Name = $wanted.rule; DisplayName = "Only SYSTEM and $($wanted.group) can use $($wanted.address)"; Enabled = 'True'; Profile = 'Any'
        Direction = 'Outbound'; Action = 'Block'; Protocol = 'TCP'; RemoteAddress = $wanted.address; RemotePort = [string[]]@($wanted.ports); LocalUser = $users
    }
    $null = New-NetFirewallRule @rule -ErrorAction Stop
}

$code = 0
$list, $accounts, $address = "$PSScriptRoot\certificates.txt", "$PSScriptRoot\accounts.txt", "$PSScriptRoot\restricted-address.json"
# Each part runs even if another failed. Its reasons are taken one by one, so that an error at its end loses none.
foreach ($part in @({ Clear-BuilderRule }, { Clear-BuilderCertificate -List $list }, { Close-BuilderAccount -List $accounts }, { Limit-Address -File $address })) {
    try { & $part | ForEach-Object -Process { $code = 1; [System.Console]::Out.WriteLine("failed: $_") } }
    catch {
        $code = 1
        [System.Console]::Out.WriteLine("failed: $($_.Exception.Message)`r`nfailed: $($_.ScriptStackTrace)")
    }
}
exit $code
