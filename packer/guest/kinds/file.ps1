@{
    # An effect of a script has no digest, and a program may have the file open.
    Get  = { param($Resource) if ($null -ne $Resource.sha256) { Get-FileFact -Path $Resource.path } elseif ([System.IO.File]::Exists($Resource.path)) { @{ } } }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no file $($Resource.path)" }
        if ($null -ne $Resource.sha256 -and $Now.sha256 -cne $Resource.sha256) { "sha256 is $($Now.sha256), not $($Resource.sha256)" }
    }
    Set  = { param($Resource, $Context)
        if ([System.IO.Directory]::Exists($Resource.path)) { throw "$($Resource.path) is a folder" }
        $folder = [System.IO.Path]::GetDirectoryName($Resource.path)
        if (-not [System.IO.Directory]::Exists($folder)) { throw "there is no folder $folder" }
        if ($null -ne $Resource.member) {
            Expand-Artifact -Context $Context -ArgumentList $Resource.member -Use {
                param($Staging)
                Copy-IntoPlace -From ([System.IO.Path]::Combine($Staging, $Resource.member.Replace('/', '\'))) -To $Resource.path -Digest $Resource.sha256 -Context $Context
            }
            return
        }
        $origin = if ($null -ne $Resource.artifact) { $Context.Artifact } else { [System.IO.Path]::Combine($Context.Bundle, $Resource.source.Replace('/', '\')) }
        Copy-IntoPlace -From $origin -To $Resource.path -Digest $Resource.sha256 -Context $Context
    }
}
