@{
    Get  = { param($Resource)
        if (-not [System.IO.Directory]::Exists($Resource.into)) { return $null }
        $members = [ordered]@{}
        foreach ($member in $Resource.members) {
            $path = [System.IO.Path]::Combine($Resource.into, $member.path)
            $members[$member.path] = $null
            if ([System.IO.File]::Exists($path)) { $members[$member.path] = Get-Digest -Path $path }
        }
        [ordered]@{ members = $members }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no folder $($Resource.into)" }
        foreach ($member in $Resource.members) {
            $found = $Now.members[$member.path]
            if ($null -eq $found) { "$($member.path) is not there" }
            elseif ($found -cne $member.sha256) { "sha256 of $($member.path) is $found, not $($member.sha256)" }
        }
    }
    Set  = { param($Resource, $Context)
        if (-not [System.IO.Directory]::Exists($Resource.into)) { throw "there is no folder $($Resource.into) for archive $($Resource.artifact)" }
        $digests = @{}
        foreach ($member in $Resource.members) { $digests[$member.path] = $member.sha256 }
        Expand-Artifact -Context $Context -ArgumentList '--strip-components', ([string]$Resource.strip) -Use {
            param($Staging)
            foreach ($file in Get-TreeEntry -Path $Staging) {
                $name = $file.Substring($Staging.Length + 1)
                $target = [System.IO.Path]::Combine($Resource.into, $name)
                if ([System.IO.Directory]::Exists($file)) { $null = [System.IO.Directory]::CreateDirectory($target); continue }
                $digest = Get-Digest -Path $file
                if ([System.IO.File]::Exists($target) -and (Get-Digest -Path $target) -ceq $digest) { continue }
                # A member of the plan must have the plan's digest, whatever was unpacked.
                if ($digests.ContainsKey($name)) { $digest = $digests[$name] }
                Copy-IntoPlace -From $file -To $target -Digest $digest -Context $Context
            }
        }
    }
}
