# An archive's files in a folder. Only the members the plan names are compared; all are unpacked.
Set-StrictMode -Version Latest
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'

@{
    Get  = {
        param($Resource)
        if (-not [System.IO.Directory]::Exists($Resource.into)) { return $null }
        $members = [ordered]@{}
        foreach ($member in $Resource.members) {
            $path = [System.IO.Path]::Combine($Resource.into, $member.path)
            $members[$member.path] = $null
            if ([System.IO.File]::Exists($path)) { $members[$member.path] = Get-Digest -Path $path }
        }
        [ordered]@{ members = $members }
    }
    Test = {
        param($Resource, $Now)
        if ($null -eq $Now) { return "there is no folder $($Resource.into)" }
        foreach ($member in $Resource.members) {
            $found = $Now.members[$member.path]
            if ($null -eq $found) { "$($member.path) is not there" }
            elseif ($found -cne $member.sha256) { "sha256 of $($member.path) is $found, not $($member.sha256)" }
        }
    }
    Set  = {
        param($Resource, $Context)
        if (-not [System.IO.Directory]::Exists($Resource.into)) { throw "there is no folder $($Resource.into) for archive $($Resource.artifact)" }
        $arguments = '-xf', $Context.Artifact, '-C', $Resource.into, '--strip-components', [string]$Resource.strip
        $null = Invoke-Native -FilePath (Get-SystemTool -Name 'tar.exe') -ArgumentList $arguments -TimeoutSeconds (Get-SecondsLeft -Context $Context)
        $false
    }
}
