@{
    Get  = { param($Resource)
        if (-not [System.IO.Directory]::Exists($Resource.into)) { return $null }
        $members = [ordered]@{}
        foreach ($member in $Resource.members) { $members[$member.path] = Get-FileFact -Path ([System.IO.Path]::Combine($Resource.into, $member.path)) }
        [ordered]@{ members = $members }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no folder $($Resource.into)" }
        foreach ($member in $Resource.members) {
            $found = $Now.members[$member.path]
            if ($null -eq $found) { "$($member.path) is not there" }
            elseif ($found.sha256 -cne $member.sha256) { "sha256 of $($member.path) is $($found.sha256), not $($member.sha256)" }
        }
    }
    Set  = { param($Resource, $Context)
        if (-not [System.IO.Directory]::Exists($Resource.into)) { throw "there is no folder $($Resource.into) for archive $($Resource.artifact)" }
        Expand-Artifact -Context $Context -ArgumentList '--strip-components', ([string]$Resource.strip) -Use {
            param($Staging)
            $others = New-Object -TypeName 'System.Collections.Generic.SortedSet[string]' -ArgumentList ([System.StringComparer]::OrdinalIgnoreCase)
            foreach ($file in Get-TreeEntry -Path $Staging) { if ([System.IO.File]::Exists($file)) { $null = $others.Add($file.Substring($Staging.Length + 1)) } }
            foreach ($member in $Resource.members) {
                if (-not $others.Remove($member.path)) { throw "tar.exe unpacked no $($member.path), which the plan has of archive $($Resource.artifact)" }
                $target = [System.IO.Path]::Combine($Resource.into, $member.path)
                if ([System.IO.File]::Exists($target) -and (Get-Digest -Path $target) -ceq $member.sha256) { continue }
                $null = [System.IO.Directory]::CreateDirectory([System.IO.Path]::GetDirectoryName($target))
                Copy-IntoPlace -From ([System.IO.Path]::Combine($Staging, $member.path)) -To $target -Digest $member.sha256 -Context $Context
            }
            if ($others.Count -eq 0) { return }
            $Context.LeftOut[$Context.Id] = [ordered]@{ count = $others.Count; names = [string[]]@($others | Select-Object -First 10) }
            [System.Console]::Out.WriteLine("left out of $($Resource.into), because the plan does not list them: $($others.Count) files of archive $($Resource.artifact), such as $(@($others)[0])")
        }
    }
}
