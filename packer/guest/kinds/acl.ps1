# Set uses icacls with SIDs. Set-Acl would also write owner and group, which needs privileges.
@{
    Get  = { param($Resource)
        if (-not ([System.IO.File]::Exists($Resource.path) -or [System.IO.Directory]::Exists($Resource.path))) { return $null }
        $acl = Get-Acl -LiteralPath $Resource.path
        # One text for each entry, so that they sort by sid, then rights, as in the report.
        $texts = [string[]]@(foreach ($rule in $acl.GetAccessRules($true, $true, [System.Security.Principal.SecurityIdentifier])) {
                # icacls adds Synchronize to every right that it grants. An entry that applies only below may have the generic right for all.
                $rights = @{ 2032127 = 'full'; 269484032 = 'full'; 1245631 = 'modify'; 1179817 = 'read'; 1048582 = 'create' }[[int]$rule.FileSystemRights -bor 1048576]
                if ($null -eq $rights) { $rights = [string]$rule.FileSystemRights }
                if ([string]$rule.AccessControlType -eq 'Deny') { $rights = "deny $rights" }
                # A planned entry of a folder applies to it, its files and its folders: flags 3 and 0. An entry for only some of them is another one,
                # except: create is a right in folders, and CREATOR OWNER (S-1-3-0) stands for whoever makes something below.
                $inherits = [string]$rule.InheritanceFlags -ne 'None'
                $flags = if ($rights -eq 'create') { '1 0' } elseif ($rule.IdentityReference.Value -eq 'S-1-3-0') { '3 2' } else { '3 0' }
                if ($inherits -and "$([int]$rule.InheritanceFlags) $([int]$rule.PropagationFlags)" -ne $flags) {
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
        $letters = @{ full = 'F'; modify = 'M'; read = 'RX'; create = '(WD,AD)' }
        $masks = @{ full = 2032127; modify = 1245631; read = 1179817; create = 1048582 }
        $planned = @(foreach ($entry in $Resource.entries) {
                $inherit, $flags = if (-not $folder) { '', '0 0' } elseif ($entry.rights -eq 'create') { '(CI)', '1 0' } elseif ($entry.sid -eq 'S-1-3-0') { '(OI)(CI)(IO)', '3 2' } else { '(OI)(CI)', '3 0' }
                @{ sid = $entry.sid; rights = $entry.rights; grant = "*$($entry.sid):$inherit$($letters[$entry.rights])"; shown = "$($masks[$entry.rights]) $flags" }
            })
        $grants = @(foreach ($one in $planned) { if ($one.rights -ne 'create') { $one.grant } })
        # Added to another entry of the same account, which /grant:r could replace.
        foreach ($one in $planned) { if ($one.rights -eq 'create') { $grants += '/grant', $one.grant } }
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
            $wanted = @($planned | Where-Object -FilterScript { $_.sid -eq $sid })
            $shown = "$([int]$rule.FileSystemRights -bor 1048576) $([int]$rule.InheritanceFlags) $([int]$rule.PropagationFlags)"
            if (@($wanted | Where-Object -FilterScript { $_.shown -eq $shown }).Count -gt 0) { continue }
            $null = Invoke-Native -FilePath $icacls -ArgumentList $Resource.path, '/remove:g', "*$sid" -TimeoutSeconds $left
            # /grant:r replaces only entries with the same flags. Account by account, so that the others keep their access.
            if ($wanted.Count -gt 0) {
                $null = Invoke-Native -FilePath $icacls -ArgumentList (@($Resource.path, '/grant') + @($wanted | ForEach-Object -Process { $_.grant })) -TimeoutSeconds $left
            }
        }
    }
}
