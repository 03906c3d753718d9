# The access rights of a file or folder: exactly these entries, none inherited.
# Set uses icacls with SIDs. Set-Acl would also write owner and group, which needs privileges.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

@{
    Get  = {
        param($Resource)
        if (-not ([System.IO.File]::Exists($Resource.path) -or [System.IO.Directory]::Exists($Resource.path))) { return $null }
        $acl = Get-Acl -LiteralPath $Resource.path
        # One text for each entry, so that they sort by sid, then rights, as in the report.
        $texts = [string[]]@(foreach ($rule in $acl.GetAccessRules($true, $true, [System.Security.Principal.SecurityIdentifier])) {
                # icacls adds Synchronize to every right that it grants.
                $rights = switch ([int]$rule.FileSystemRights -bor 1048576) {
                    2032127 { 'full' }
                    1245631 { 'modify' }
                    1179817 { 'read' }
                    default { [string]$rule.FileSystemRights }
                }
                if ([string]$rule.AccessControlType -eq 'Deny') { $rights = "deny $rights" }
                "$($rule.IdentityReference.Value)`t$rights`t$([string]$rule.InheritanceFlags -ne 'None')"
            })
        [array]::Sort($texts, [System.StringComparer]::Ordinal)
        $entries = @(foreach ($text in $texts) {
                $sid, $rights, $inherit = $text.Split("`t")
                [ordered]@{ sid = $sid; rights = $rights; inherit = $inherit -eq 'True' }
            })
        [ordered]@{ protected = $acl.AreAccessRulesProtected; entries = $entries }
    }
    Test = {
        param($Resource, $Now)
        if ($null -eq $Now) { return "there is no $($Resource.path)" }
        if (-not $Now.protected) { 'it inherits' }
        $inherit = [System.IO.Directory]::Exists($Resource.path)
        $have = @($Now.entries | ForEach-Object -Process { "$($_.sid) $($_.rights), inherit $($_.inherit)" })
        $want = @($Resource.entries | ForEach-Object -Process { "$($_.sid) $($_.rights), inherit $inherit" })
        foreach ($one in $want) { if ($have -notcontains $one) { "there is no entry $one" } }
        foreach ($one in $have) { if ($want -notcontains $one) { "there is an entry $one" } }
        if ($have.Count -gt @($have | Select-Object -Unique).Count) { 'an entry is duplicated' }
    }
    Set  = {
        param($Resource, $Context)
        $folder = [System.IO.Directory]::Exists($Resource.path)
        if (-not $folder -and -not [System.IO.File]::Exists($Resource.path)) { throw "there is no $($Resource.path)" }
        $inherit = ''
        if ($folder) { $inherit = '(OI)(CI)' }
        $letters = @{ full = 'F'; modify = 'M'; read = 'RX' }
        $grants = @($Resource.entries | ForEach-Object -Process { "*$($_.sid):$inherit$($letters[$_.rights])" })
        $icacls = Get-SystemTool -Name 'icacls.exe'
        $left = Get-SecondsLeft -Context $Context
        # In one call, so that access is never wider than before, and never lost for the accounts that keep it.
        $null = Invoke-Native -FilePath $icacls -ArgumentList (@($Resource.path, '/inheritance:r', '/grant:r') + $grants) -TimeoutSeconds $left
        $wanted = @($Resource.entries | ForEach-Object -Process { $_.sid })
        foreach ($rule in (Get-Acl -LiteralPath $Resource.path).GetAccessRules($true, $false, [System.Security.Principal.SecurityIdentifier])) {
            $sid = $rule.IdentityReference.Value
            $option = $null
            if ([string]$rule.AccessControlType -eq 'Deny') { $option = '/remove:d' }
            elseif ($wanted -notcontains $sid) { $option = '/remove:g' }
            if ($null -ne $option) { $null = Invoke-Native -FilePath $icacls -ArgumentList $Resource.path, $option, "*$sid" -TimeoutSeconds $left }
        }
        $false
    }
}
