# Set uses icacls with SIDs. Set-Acl would also write owner and group, which needs privileges.
@{
    Get  = { param($Resource)
        if (-not ([System.IO.File]::Exists($Resource.path) -or [System.IO.Directory]::Exists($Resource.path))) { return $null }
        $acl = Get-Acl -LiteralPath $Resource.path
        # One text for each entry, so that they sort by sid, then rights, as in the report.
        $texts = [string[]]@(foreach ($rule in $acl.GetAccessRules($true, $true, [System.Security.Principal.SecurityIdentifier])) {
                # icacls adds Synchronize to every right that it grants.
                $rights = @{ 2032127 = 'full'; 1245631 = 'modify'; 1179817 = 'read' }[[int]$rule.FileSystemRights -bor 1048576]
                if ($null -eq $rights) { $rights = [string]$rule.FileSystemRights }
                if ([string]$rule.AccessControlType -eq 'Deny') { $rights = "deny $rights" }
                # A planned entry of a folder applies to it, its files and its folders: flags 3 and 0. An entry for only some of them is another one.
                $inherits = [string]$rule.InheritanceFlags -ne 'None'
                if ($inherits -and ([int]$rule.InheritanceFlags -ne 3 -or [int]$rule.PropagationFlags -ne 0)) {
                    $rights = "$rights ($($rule.InheritanceFlags); $($rule.PropagationFlags))"
                }
                "$($rule.IdentityReference.Value)`t$rights`t$inherits"
            })
        [array]::Sort($texts, [System.StringComparer]::Ordinal)
        $entries = @(foreach ($text in $texts) {
                $sid, $rights, $inherit = $text.Split("`t")
                [ordered]@{ sid = $sid; rights = $rights; inherit = $inherit -eq 'True' }
            })
        [ordered]@{ protected = $acl.AreAccessRulesProtected; entries = $entries }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no $($Resource.path)" }
        if (-not $Now.protected) { 'it inherits' }
        $inherit = [System.IO.Directory]::Exists($Resource.path)
        $have = @($Now.entries | ForEach-Object -Process { "$($_.sid) $($_.rights), inherit $($_.inherit)" })
        $want = @($Resource.entries | ForEach-Object -Process { "$($_.sid) $($_.rights), inherit $inherit" })
        foreach ($one in $want) { if ($have -notcontains $one) { "there is no entry $one" } }
        foreach ($one in $have) { if ($want -notcontains $one) { "there is an entry $one" } }
        if ($have.Count -gt @($have | Select-Object -Unique).Count) { 'an entry is duplicated' }
    }
    Set  = { param($Resource, $Context)
        $folder = [System.IO.Directory]::Exists($Resource.path)
        if (-not $folder -and -not [System.IO.File]::Exists($Resource.path)) { throw "there is no $($Resource.path)" }
        $inherit, $flags = if ($folder) { '(OI)(CI)', 3 } else { '', 0 }
        $letters = @{ full = 'F'; modify = 'M'; read = 'RX' }
        $masks = @{ full = 2032127; modify = 1245631; read = 1179817 }
        $grants = @($Resource.entries | ForEach-Object -Process { "*$($_.sid):$inherit$($letters[$_.rights])" })
        $icacls = Get-SystemTool -Name 'icacls.exe'
        $left = Get-SecondsLeft -Context $Context
        # In one call, so that access is never wider than before, and never lost for the accounts that keep it.
        $null = Invoke-Native -FilePath $icacls -ArgumentList (@($Resource.path, '/inheritance:r', '/grant:r') + $grants) -TimeoutSeconds $left
        foreach ($rule in (Get-Acl -LiteralPath $Resource.path).GetAccessRules($true, $false, [System.Security.Principal.SecurityIdentifier])) {
            $sid = $rule.IdentityReference.Value
            if ([string]$rule.AccessControlType -eq 'Deny') {
                $null = Invoke-Native -FilePath $icacls -ArgumentList $Resource.path, '/remove:d', "*$sid" -TimeoutSeconds $left
                continue
            }
            $wanted = @($Resource.entries | Where-Object -FilterScript { $_.sid -eq $sid })
            $isPlanned = $wanted.Count -gt 0 -and ([int]$rule.FileSystemRights -bor 1048576) -eq $masks[$wanted[0].rights]
            if ($isPlanned -and [int]$rule.InheritanceFlags -eq $flags -and [int]$rule.PropagationFlags -eq 0) { continue }
            $null = Invoke-Native -FilePath $icacls -ArgumentList $Resource.path, '/remove:g', "*$sid" -TimeoutSeconds $left
            # /grant:r replaces only entries with the same flags. Account by account, so that the others keep their access.
            if ($wanted.Count -gt 0) {
                $null = Invoke-Native -FilePath $icacls -ArgumentList $Resource.path, '/grant:r', "*${sid}:$inherit$($letters[$wanted[0].rights])" -TimeoutSeconds $left
            }
        }
    }
}
