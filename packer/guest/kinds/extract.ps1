@{
    Get  = { param($Resource) Get-FileFact -Path $Resource.path }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no file $($Resource.path)" }
        if ($Now.sha256 -cne $Resource.sha256) { "sha256 is $($Now.sha256), not $($Resource.sha256)" }
    }
    Set  = { param($Resource, $Context)
        if ([System.IO.Directory]::Exists($Resource.path)) { throw "$($Resource.path) is a folder" }
        $folder = [System.IO.Path]::GetDirectoryName($Resource.path)
        if (-not [System.IO.Directory]::Exists($folder)) { throw "there is no folder $folder for a file of archive $($Resource.artifact)" }
        Expand-Artifact -Context $Context -ArgumentList $Resource.member -Use {
            param($Staging)
            Copy-IntoPlace -From ([System.IO.Path]::Combine($Staging, $Resource.member.Replace('/', '\'))) -To $Resource.path -Digest $Resource.sha256 -Context $Context
        }
    }
}
