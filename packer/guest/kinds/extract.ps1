# One file of an archive, at its own path. Nothing else of the archive comes into place.
@{
    Get  = { param($Resource)
        if (-not [System.IO.File]::Exists($Resource.path)) { return $null }
        $length = (New-Object -TypeName System.IO.FileInfo -ArgumentList $Resource.path).Length
        [ordered]@{ sha256 = Get-Digest -Path $Resource.path; size = $length }
    }
    Test = { param($Resource, $Now)
        if ($null -eq $Now) { return "there is no file $($Resource.path)" }
        if ($Now.sha256 -cne $Resource.sha256) { "sha256 is $($Now.sha256), not $($Resource.sha256)" }
    }
    Set  = { param($Resource, $Context)
        if ([System.IO.Directory]::Exists($Resource.path)) { throw "$($Resource.path) is a folder" }
        $folder = [System.IO.Path]::GetDirectoryName($Resource.path)
        if (-not [System.IO.Directory]::Exists($folder)) { throw "there is no folder $folder for a file of archive $($Resource.artifact)" }
        # Beside the artifact: nobody else can write there, and the phase deletes the folder at its end.
        $staging = [System.IO.Path]::Combine([System.IO.Path]::GetDirectoryName($Context.Artifact), 'unpacked')
        Clear-Tree -Path $staging
        try {
            $null = [System.IO.Directory]::CreateDirectory($staging)
            $arguments = '-xf', $Context.Artifact, '-C', $staging, $Resource.member
            $null = Invoke-Native -FilePath (Get-SystemTool -Name 'tar.exe') -ArgumentList $arguments -TimeoutSeconds (Get-SecondsLeft -Context $Context)
            Copy-IntoPlace -From ([System.IO.Path]::Combine($staging, $Resource.member.Replace('/', '\'))) -To $Resource.path -Digest $Resource.sha256
        }
        finally { Clear-Tree -Path $staging }
        $false
    }
}
